"""What recoveries did to a deployment, as moments of its time line."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from pdctl.diagnose.report import Moment, SourceRef
from pdctl.evidence.kept import FOLDER
from pdctl.recover.ledger import FILE, Entry, Ledger, Step

_TOLD = {
    Step.PLANNED: "recovery planned",
    Step.ABORTING: "requests are being aborted",
    Step.STOPPING: "is being stopped",
    Step.STOPPED: "stopped",
    Step.STARTED: "started again",
    Step.READY: "ready again",
    Step.FAULT: "recovery met a fault",
    Step.ENDED: "recovery ended",
}


def recovery_moments(directory: Path) -> tuple[Moment, ...]:
    """Return the steps of the recoveries of the deployment whose kept directory this is; none for other folders."""
    if directory.parent.name != FOLDER:
        return ()
    recoveries = Ledger(directory.parent.parent).recoveries()
    return tuple(moment for recovery in recoveries for entry in recovery.entries for moment in _moment(entry))


def _moment(entry: Entry) -> Iterator[Moment]:
    told = _TOLD.get(entry.step)
    if told is None:
        return
    more = [str(part) for part in (entry.outcome, entry.detail) if part]
    yield Moment(
        at=datetime.fromtimestamp(entry.at, UTC),
        instance=entry.instance or "recovery",
        what=f"{told} by {entry.by}" + (f": {', '.join(more)}" if more else ""),
        source=SourceRef(file=FILE, pointer=entry.recovery),
    )
