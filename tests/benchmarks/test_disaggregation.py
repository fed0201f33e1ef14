"""What the comparison of a pair with two unified engines makes of its times."""

from __future__ import annotations

from benchmarks.disaggregation import middle_rate


def test_neither_filling_up_nor_running_empty_counts() -> None:
    """Two at once, ten requests: from the second answer, at 7 s, to the eighth, at 13 s, come six more."""
    answered = [6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 20.0, 40.0]
    assert middle_rate(answered, 2) == 1.0
