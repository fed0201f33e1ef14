"""The ledger survives torn lines and full disks, and knows what is half done."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.errors import PdctlError
from pdctl.recover.ledger import Ledger, Notes, Outcome, Step


def test_every_line_is_one_step_in_order(tmp_path: Path) -> None:
    """Steps come back in the order in which they were written, by recovery."""
    ledger = Ledger(tmp_path)
    Notes(ledger, "a").note(Step.STOPPING, "decode-0")
    Notes(ledger, "b").note(Step.PLANNED)
    Notes(ledger, "a").note(Step.STOPPED, "decode-0", took_s=1.23456)
    assert [(r.id, [e.step for e in r.entries]) for r in ledger.recoveries()] == [
        ("a", [Step.STOPPING, Step.STOPPED]),
        ("b", [Step.PLANNED]),
    ]
    assert ledger.recovery("a").last(Step.STOPPED, "decode-0").took_s == 1.235  # type: ignore[union-attr]


def test_torn_line_costs_only_itself(tmp_path: Path) -> None:
    """Half a line of a killed writer is skipped, and the next line is whole."""
    ledger = Ledger(tmp_path)
    Notes(ledger, "a").note(Step.PLANNED)
    with ledger.path.open("ab") as file:
        file.write(b'{"recovery":"a","at":1,"st')
    Notes(ledger, "a").note(Step.ENDED, outcome=Outcome.CANCELLED)
    assert [entry.step for entry in ledger.recovery("a").entries] == [Step.PLANNED, Step.ENDED]


def test_unfinished_is_the_latest_without_an_end(tmp_path: Path) -> None:
    """What has ended is not unfinished, what ended badly neither."""
    ledger = Ledger(tmp_path)
    for name, outcome in (("a", Outcome.RECOVERED), ("b", Outcome.NOT_READY)):
        Notes(ledger, name).note(Step.PLANNED)
        Notes(ledger, name).note(Step.ENDED, outcome=outcome)
    assert ledger.unfinished() is None
    Notes(ledger, "c").note(Step.STOPPING)
    unfinished = ledger.unfinished()
    assert unfinished is not None
    assert unfinished.id == "c"


def test_full_disk_is_told_with_file_and_remedy() -> None:
    """A line that is not on the disk for certain is an error: /dev/full says ENOSPC to every write."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    ledger = Ledger(Path("/dev"))
    ledger.path = Path("/dev/full")
    with pytest.raises(PdctlError, match=r"cannot write <Step.PLANNED.*/dev/full: No space left") as raised:
        Notes(ledger, "a").note(Step.PLANNED)
    assert raised.value.hint == "make room there, then run it again"


def test_ledger_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Reasons may name customers: mode 0600."""
    Notes(Ledger(tmp_path), "a").note(Step.PLANNED)
    assert (tmp_path / "ledger.jsonl").stat().st_mode & 0o777 == 0o600
