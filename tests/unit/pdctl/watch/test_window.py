"""Which samples a judgement compares."""

from __future__ import annotations

import pytest

from pdctl.diagnose.diagnosis import diagnose
from pdctl.watch.window import PATIENCE_S, STILL_S, Window
from tests.unit.pdctl.watch.samples import DEPLOYMENT, SILENT, STOPPED, WELL, metrics, sample


def window(*samples_s: float) -> Window:
    made = Window(DEPLOYMENT)
    for at in samples_s:
        made.add(sample(at, d__metrics=metrics(tokens=int(at)), d__http=WELL))
    return made


def test_one_sample_alone_has_no_interval() -> None:
    """Nothing can have moved yet."""
    assert window(0).evidence((), PATIENCE_S).interval_s is None


def test_the_youngest_sample_that_is_old_enough_is_the_first() -> None:
    """With looks every 2 s, patience of 10 s is spanned by exactly that."""
    looks = window(*range(0, 42, 2))
    assert looks.evidence((), PATIENCE_S).interval_s == 10
    assert looks.evidence((), STILL_S).interval_s == 4


def test_a_window_that_is_still_short_compares_with_the_oldest() -> None:
    """It judges from the second look on."""
    assert window(0, 2, 4).evidence((), PATIENCE_S).interval_s == 4


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_clock_that_was_set_begins_a_new_window(step_s: float) -> None:
    """Two seconds are neither an hour in which nothing moved, nor an hour of samples that never grow old."""
    looks = window(*range(0, 20, 2))
    looks.add(sample(20, step_s, d__metrics=metrics(tokens=20), d__http=WELL))
    assert looks.evidence((), PATIENCE_S).interval_s is None
    for at in range(22, 62, 2):
        looks.add(sample(at, step_s, d__metrics=metrics(tokens=at), d__http=WELL))
    assert looks.evidence((), PATIENCE_S).interval_s == 10
    assert len(looks._samples) < 10


def test_what_was_true_of_processes_then_is_not_taken_for_now() -> None:
    """A process that was stopped at the first sample, and answers at the second, is not stopped."""
    looks = Window(DEPLOYMENT)
    looks.add(sample(0, d__http=SILENT, d__process=STOPPED))
    looks.add(sample(12, d__http=WELL, d__metrics=metrics()))
    [decode] = [item for item in looks.evidence((), PATIENCE_S).instances if item.name == "d"]
    assert decode.processes == ()
    assert [get.status for get in decode.gets] == [200]


def stalled(*, age_s: float) -> str:
    """Return the verdict on a decode that moved nothing for 10 s and holds a request of that age."""
    looks = Window(DEPLOYMENT)
    for at in range(0, 12, 2):
        looks.add(sample(at, d__http=WELL, d__metrics=metrics(decoding=int(at >= 10 - age_s), age_s=min(at, age_s))))
    return diagnose(looks.evidence((), PATIENCE_S)).verdict


def test_a_request_that_stands_for_all_of_patience_is_a_wedge() -> None:
    """Outstanding, no progress, not busy, for 10 s."""
    assert stalled(age_s=10) == "wedged"


def test_a_request_that_came_a_moment_ago_to_an_idle_engine_is_none() -> None:
    """Nothing moved for 10 s because there was nothing to move."""
    assert stalled(age_s=1) == "unknown"
