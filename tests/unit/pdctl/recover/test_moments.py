"""Recoveries in the time line of what they recovered."""

from __future__ import annotations

from pathlib import Path

from pdctl.recover.ledger import Entry, Ledger, Outcome, Step
from pdctl.recover.moments import recovery_moments


def test_a_recovery_is_told_beside_the_evidence_it_belongs_to(tmp_path: Path) -> None:
    """Who stopped and started what; steps between them are no moments."""
    ledger = Ledger(tmp_path)
    for at, step, instance in ((1.0, Step.STOPPED, "p"), (2.0, Step.TAKEN_OVER, ""), (3.0, Step.STARTED, "p")):
        ledger.append(Entry(recovery="r1", at=at, step=step, by="ann@host pid 7", instance=instance))
    ledger.append(Entry(recovery="r1", at=4.0, step=Step.ENDED, by="ann@host pid 7", outcome=Outcome.RECOVERED))
    said = [(item.at.timestamp(), item.instance, item.what) for item in recovery_moments(tmp_path / "incidents" / "x")]
    assert said == [
        (1.0, "p", "stopped by ann@host pid 7"),
        (3.0, "p", "started again by ann@host pid 7"),
        (4.0, "recovery", "recovery ended by ann@host pid 7: recovered"),
    ]


def test_a_folder_that_lies_elsewhere_has_no_recoveries(tmp_path: Path) -> None:
    """A ticket's folder belongs to no deployment of this machine."""
    assert recovery_moments(tmp_path / "ticket") == ()
