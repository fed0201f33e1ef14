"""The forms of a report."""

from __future__ import annotations

import json

import pytest

from pdctl.diagnose.report import Report
from pdctl.render.codes_table import as_json as codes_as_json
from pdctl.render.report_json import as_json
from pdctl.render.report_markdown import as_markdown
from pdctl.render.report_short import as_short
from pdctl.render.report_table import as_table
from tests.unit.pdctl.diagnose import incident as make

_FIELDS = {
    "schema", "tool", "captured_at", "deployment", "verdict", "impact", "incident_id", "seen_before", "changes",
    "probe",
    "clock_skew_ms", "checked", "suppressed", "complete", "affected", "since", "causes", "ruled_out", "undecided",
    "not_checked", "collectors", "timeline",
}  # fmt: skip


def _wedged() -> Report:
    stacks = make.stack(
        10,
        "sglang::scheduler",
        "recv_pyobj < recv_requests < event_loop",
        "transfer_worker",
        "transfer_worker",
    )
    return make.report(make.PAIR, **make.stalled_pair(), p__log_txt=make.abort_burst(), p__stacks_txt=stacks)


def _silent() -> Report:
    return make.report(make.PAIR)


@pytest.mark.parametrize("report", [_wedged(), _silent()], ids=["wedged", "nothing known"])
def test_the_first_screen_fits_a_terminal(report: Report) -> None:
    """80 columns by 24 rows, the prompt's row included."""
    lines = as_table(report).splitlines()
    assert len(lines) <= 23
    assert max(len(line) for line in lines) <= 80


def test_verdict_cause_and_next_step_are_on_the_screen() -> None:
    """What a person needs at 3 a.m., with real names filled in."""
    text = as_table(_wedged())
    assert "WEDGED" in text
    assert "PD0301" in text
    assert "pdctl restart p d" in text


def test_without_a_cause_the_screen_says_so() -> None:
    """It does not fill the place with a guess."""
    assert "none is proven" in as_table(_silent())


def test_the_short_form_has_at_most_twelve_lines() -> None:
    """For pasting into a chat."""
    assert len(as_short(_wedged()).splitlines()) <= 12


def test_the_json_has_every_field_of_the_format() -> None:
    """One document, nothing renamed."""
    document = json.loads(as_json(_wedged()))
    assert document.keys() >= _FIELDS
    assert document["schema"] == "pdctl.report/1"
    cause = document["causes"][0]
    assert cause["subject"] == {"instance": "p", "role": "prefill", "rank": None, "request": None}
    assert {
        "code",
        "name",
        "label",
        "level",
        "confidence",
        "message",
        "causal_role",
        "observations",
        "next",
        "runbook",
        "fingerprint",
    } <= cause.keys()
    assert {row["weight"] for row in cause["observations"]} <= {"proves", "requires", "suggests", "refutes"}


def test_the_ticket_names_the_evidence() -> None:
    """Each observation stands with the file it was read from."""
    assert "`p/stacks.txt:1`" in as_markdown(_wedged())


def test_codes_carry_what_the_format_asks_for() -> None:
    """`{code, name, label, level, action, runbook, drill}` for every code."""
    rows = json.loads(codes_as_json())
    assert all(row.keys() == {"code", "name", "label", "level", "action", "runbook", "drill"} for row in rows)
    assert rows[0]["runbook"] == "runbooks/PD0101-process-gone.md"
