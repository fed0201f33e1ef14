"""Two incidents side by side."""

from __future__ import annotations

from pdctl.diagnose.comparison import compare
from pdctl.evidence.model import Evidence
from tests.unit.pdctl.diagnose import incident as make

_SOURCE = (
    'version = "{version}"\nflags = ["--tp", "1", "--page-size={page}", "--peers", "a", "b"]\n[env]\nX_TIMEOUT = "5"\n'
)


def _evidence(version: str = "0.5.12", page: int = 16, **files: str) -> Evidence:
    return make.evidence(make.PAIR, p__source_toml=_SOURCE.format(version=version, page=page), **files)


def _changes(before: Evidence, after: Evidence) -> set[tuple[str, str, str, str, str]]:
    rows = compare(before, after)
    return {(row.section, row.instance, row.what, row.before, row.after) for row in rows if row.differs}


def test_an_incident_does_not_differ_from_itself() -> None:
    """Nothing is left but rows that agree."""
    rows = compare(_evidence(), _evidence())
    assert rows
    assert not any(row.differs for row in rows)


def test_version_and_flags_are_compared_one_by_one() -> None:
    """A flag with two values is one flag."""
    assert _changes(_evidence(), _evidence("0.5.16", 64)) == {
        ("code", "p", "version", "0.5.12", "0.5.16"),
        ("flags", "p", "--page-size", "16", "64"),
    }
    rows = {(row.what, row.before) for row in compare(_evidence(), _evidence()) if row.section == "flags"}
    assert rows == {("--tp", "1"), ("--page-size", "16"), ("--peers", "a b"), ("X_TIMEOUT", "5")}


def test_what_one_of_them_does_not_tell_is_a_dash() -> None:
    """No value is made up for it."""
    rows = _changes(make.evidence(make.PAIR), _evidence())
    assert ("code", "p", "version", "-", "0.5.12") in rows


def test_symptoms_and_firm_causes_stand_beside_each_other() -> None:
    """A good day and a bad one."""
    stacks = make.stack(10, "sglang::scheduler", "recv_pyobj < recv_requests < event_loop", *["transfer_worker"] * 2)
    bad = make.evidence(make.PAIR, **make.stalled_pair(), p__stacks_txt=stacks)
    rows = _changes(make.evidence(make.PAIR), bad)
    assert ("report", "", "verdict", "unknown", "wedged") in rows
    assert ("symptoms", "d", "stalled transfer", "-", "yes") in rows
    assert ("causes", "", "PD0301 bootstrap-thread-dead", "-", "established") in rows


def test_a_process_that_started_anew_is_seen() -> None:
    """Its start differs, with its age."""
    process = '[[process]]\npid = 5\ntitle = "sglang::scheduler"\nstate = "S"\nstarted_at = 2026-06-19T{hour}:00:00Z\n'
    before, after = (make.evidence(make.PAIR, p__process_toml=process.format(hour=hour)) for hour in ("08", "14"))
    row = next(row for row in _changes(before, after) if row[2] == "started")
    assert row[3:] == ("2026-06-19 08:00:00Z, 6.5 h old", "2026-06-19 14:00:00Z, 0.5 h old")
