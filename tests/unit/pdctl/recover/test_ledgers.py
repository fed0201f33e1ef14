"""The ledger's copies on other hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.deployment.state import StateFolder
from pdctl.errors import PdctlError
from pdctl.hosts.child import Child, End
from pdctl.recover.ledger import Notes, Step
from pdctl.recover.ledgers import MirroredLedger
from tests.fakes.answering_host import AnsweringHost


def full(argv: tuple[str, ...]) -> Child:
    """Answer as a host whose disk is full."""
    return Child(argv=argv, end=End.EXITED, code=1, stderr="cat: write error: No space left on device")


def test_stop_that_another_host_could_not_write_down_stands_nowhere(tmp_path: Path) -> None:
    """Else a second executor would go on from a stop whose guard knows nothing of it."""
    folder = StateFolder(tmp_path, "d")
    folder.create()
    said: list[str] = []
    ledger = MirroredLedger(folder, [AnsweringHost(full)], said.append)
    with pytest.raises(PdctlError, match=r"ledger of ssh:gpu7: .*No space left"):
        Notes(ledger, "r1").note(Step.STOPPING)
    assert not ledger.recovery("r1").has(Step.STOPPING)
    Notes(ledger, "r1").note(Step.STARTED)
    assert ledger.recovery("r1").has(Step.STARTED)
    assert "No space left" in said[0]
