"""The stuck clock: fires for a hung loop, and for nothing else."""

from __future__ import annotations

from engine.observe.watchdog import StuckClock
from engine.scheduler.progress import Progress


def beats_until_stuck(clock: StuckClock, turns: int) -> int:
    """Return how many beats of an unmoved loop it takes."""
    return next(beat for beat in range(1000) if clock.beat(turns))


def test_fires_after_the_floor() -> None:
    """Thirty beats of one second after the last movement."""
    assert beats_until_stuck(StuckClock(30.0), turns=5) == 30


def test_long_steps_stretch_it() -> None:
    """An engine whose steps take 8 s may be still for 80 s."""
    clock = StuckClock(30.0)
    assert not any(clock.beat(4) for _ in range(9))
    assert beats_until_stuck(clock, turns=5) == 80


def test_a_stop_stretches_nothing() -> None:
    """A process that was stopped for ten minutes within a step has missed its beats with it."""
    progress, clock = Progress(), StuckClock(30.0)
    assert not progress.is_stuck(clock)
    progress.step(600.0)
    progress.turn(600.0)
    assert not progress.is_stuck(clock)
    assert (progress.longest_step_s, progress.longest_turn_s) == (600.0, 0.0)
    assert beats_until_stuck(clock, turns=progress.turns) == 29


def test_any_movement_starts_it_again() -> None:
    """Two beats, one turn, 29 beats: alive."""
    clock = StuckClock(30.0)
    assert not any(clock.beat(1) for _ in range(3))
    assert not any(clock.beat(2) for _ in range(30))
    assert clock.beat(2)
