"""Whether an incident was seen before, and whether its cause was the same."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from pdctl.diagnose.recurrence import conclusion_of, with_earlier
from pdctl.diagnose.report import Report
from pdctl.evidence import manifest
from pdctl.evidence.kept import Earlier, earlier_than
from pdctl.render.report_table import as_table
from tests.unit.pdctl.diagnose import incident as make

_AT = datetime(2026, 6, 1, 3, 0, tzinfo=UTC)
_IDLE = "recv_pyobj@zmq/sugar/socket.py < recv_requests < event_loop"


def _wedged(*threads: str) -> Report:
    """Return a report on a stalled pair; its prefill shows these threads."""
    stacks = make.stack(10, "sglang::scheduler", _IDLE, *threads)
    return make.report(make.PAIR, **make.stalled_pair(), p__stacks_txt=stacks)


def _before(report: Report, **changes: object) -> Earlier:
    return Earlier(_AT, msgspec.structs.replace(conclusion_of(report), incident_id="before", **changes))


def test_the_same_symptom_of_another_cause_is_told_as_such() -> None:
    """Who restarts by memory restarts for the wrong reason."""
    now = _wedged("transfer_worker", "transfer_worker")
    seen = with_earlier(now, [_before(now, codes=("PD0403",))])
    assert [(row.incident_id, row.same_cause, row.codes) for row in seen.seen_before] == [
        ("before", False, ("PD0403",))
    ]
    assert "same symptom, other cause: PD0403 on 2026-06-01 03:00Z" in as_table(seen)


def test_the_same_cause_again_is_counted() -> None:
    """Several runs on one earlier incident are one incident."""
    now = _wedged("transfer_worker", "transfer_worker")
    seen = with_earlier(now, [_before(now), _before(now)])
    assert [row.same_cause for row in seen.seen_before] == [True]
    assert "1x before with the same cause" in as_table(seen)


def test_a_run_on_the_same_incident_is_no_earlier_one() -> None:
    """It has the same id, because the same processes suffer from the same thing."""
    now = _wedged("transfer_worker", "transfer_worker")
    assert with_earlier(now, [Earlier(_AT, conclusion_of(now))]).seen_before == ()


def test_other_symptoms_are_no_kin() -> None:
    """A leak last week tells nothing of a stall today."""
    now = _wedged("transfer_worker", "transfer_worker")
    assert with_earlier(now, [_before(now, symptoms=("leak p kv",))]).seen_before == ()


def _keep(folder: Path, report: Report | None) -> Path:
    folder.mkdir(parents=True)
    whole = manifest.Manifest(
        deployment="x",
        tool_version="0",
        captured_at=_AT.isoformat(),
        took_s=1.0,
        is_complete=True,
        conclusion=conclusion_of(report) if report else None,
    )
    manifest.write(folder, whole)
    return folder


def test_conclusions_are_read_from_the_kept_folders_before(tmp_path: Path) -> None:
    """Newest first; later ones, unjudged ones, half ones and folders that lie elsewhere do not count."""
    root = tmp_path / "incidents"
    report = _wedged("transfer_worker", "transfer_worker")
    for name in ("20260601-0001-a", "20260601-0002-a", "20260602-0001-a"):
        _keep(root / name, report)
    _keep(root / "20260601-0003-a", None)
    (root / "20260601-0004-a").mkdir()
    (root / "20260601-0004-a" / "manifest.json").write_text("{")
    earlier = earlier_than(root / "20260601-0009-a")
    assert [item.conclusion.codes for item in earlier] == [("PD0301",), ("PD0301",)]
    assert earlier_than(_keep(tmp_path / "elsewhere" / "20260609-0001-a", report)) == ()
