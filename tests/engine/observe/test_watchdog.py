"""The stuck clock: fires for a hung loop, and for nothing else."""

from __future__ import annotations

from engine.observe.watchdog import StuckClock


def beats_until_stuck(clock: StuckClock, turns: int, longest_step_s: float) -> int:
    """Return how many beats of an unmoved loop it takes."""
    return next(beat for beat in range(1000) if clock.beat(turns, longest_step_s))


def test_fires_after_the_floor() -> None:
    """Thirty beats of one second after the last movement."""
    assert beats_until_stuck(StuckClock(30.0), turns=5, longest_step_s=0.1) == 30


def test_long_steps_stretch_it() -> None:
    """An engine whose steps take 8 s may be still for 80 s."""
    assert beats_until_stuck(StuckClock(30.0), turns=5, longest_step_s=8.0) == 80


def test_any_movement_starts_it_again() -> None:
    """29 beats, one turn, 29 beats: alive."""
    clock = StuckClock(30.0)
    assert not any(clock.beat(1, 0.0) for _ in range(30))
    assert not any(clock.beat(2, 0.0) for _ in range(30))
    assert clock.beat(2, 0.0)
