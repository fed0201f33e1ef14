"""What a reader leaves out of a report, and what can never be left out."""

from __future__ import annotations

from datetime import date

import pytest

from pdctl.diagnose.diagnosis import diagnose
from pdctl.diagnose.exit_status import exit_status
from pdctl.diagnose.focus import Focus, Suppression, idle_suppressions, suppression_of
from pdctl.diagnose.report import Report
from pdctl.errors import UsageError
from tests.unit.pdctl.diagnose import incident as make

_LAST_DAY = date(2026, 6, 19)
"""The day of the small incidents."""
_XID = "[[gpu]]\nindex = 0\nxid = [79]\n"
_DECODE_LOG = "[2026-06-19 14:29:50 TP0] Decode batch, #running-req: 4, #queue-req: 0, gen throughput (token/s): 50.0\n"


def _faulty(*suppressions: Suppression, names: str = "d") -> Report:
    """Return the report on a decode that works on, with a GPU fault on each of the named instances."""
    # A health check that fails is the symptom of the fault; a young step shows that requests are served.
    files = {"d__log_txt": _DECODE_LOG}
    for name in names:
        files[f"{name}__gpu_toml"] = _XID
        files[f"{name}__http_toml"] = '[[get]]\npath = "/health"\nstatus = 503\ntook_ms = 5\n'
    return diagnose(make.evidence(make.PAIR, **files), focus=Focus(suppressions=suppressions))


def _stalled(**focus: tuple[str, ...]) -> Report:
    stacks = make.stack(10, "sglang::scheduler", "recv_pyobj < recv_requests < event_loop", *["transfer_worker"] * 2)
    return diagnose(make.evidence(make.PAIR, **make.stalled_pair(), p__stacks_txt=stacks), focus=Focus(**focus))


def test_an_accepted_cause_fails_nothing() -> None:
    """It is listed as accepted, is no cause any more, and the exit status is that of the rest."""
    before, after = _faulty(), _faulty(Suppression("PD0701", "d", _LAST_DAY))
    assert (before.verdict, [cause.code for cause in before.firm], exit_status(before)) == ("degraded", ["PD0701"], 1)
    assert (after.verdict, after.firm, after.suppressed, exit_status(after)) == ("healthy", (), ("PD0701",), 0)


def test_an_accepted_cause_comes_back_after_its_last_day() -> None:
    """The day of the evidence counts, not the day of the analysis."""
    report = _faulty(Suppression("PD0701", "d", date(2026, 6, 18)))
    assert (report.suppressed, [cause.code for cause in report.firm]) == ((), ["PD0701"])


def test_a_cause_that_spread_to_another_instance_is_told() -> None:
    """Accepted on one of two is not accepted."""
    one = Suppression("PD0701", "d", _LAST_DAY)
    other = Suppression("PD0701", "p", _LAST_DAY)
    assert [cause.code for cause in _faulty(one, names="dp").firm] == ["PD0701"]
    assert _faulty(one, other, names="dp").firm == ()


def test_a_suppression_never_hides_that_work_stands_still() -> None:
    """The cause is accepted, the wedge is one."""
    stacks = make.stack(10, "sglang::scheduler", "recv_pyobj < recv_requests < event_loop", *["transfer_worker"] * 2)
    case = make.evidence(make.PAIR, **make.stalled_pair(), p__stacks_txt=stacks)
    report = diagnose(case, focus=Focus(suppressions=(Suppression("PD0301", "p", _LAST_DAY),)))
    assert (report.verdict, report.suppressed, exit_status(report)) == ("wedged", ("PD0301",), 1)


def test_only_leaves_out_other_causes_and_says_which_stand() -> None:
    """Verdict and exit status are of the whole."""
    report = _stalled(only=("PD0304",))
    assert (report.verdict, report.checked, report.hidden) == ("wedged", 1, ("PD0301",))
    assert {cause.code for cause in report.causes} <= {"PD0304"}
    assert {row.code for row in (*report.ruled_out, *report.not_checked)} <= {"PD0304"}


def test_a_focus_changes_no_judgement() -> None:
    """What is shown is what would have been shown among the rest."""
    whole, part = _stalled(), _stalled(only=("PD0301",))
    assert [cause for cause in whole.causes if cause.code == "PD0301"] == list(part.causes)
    assert whole.incident_id == part.incident_id


def test_a_suppression_is_read_from_its_text() -> None:
    """Instance names may have dots and dashes."""
    assert suppression_of("pd0405=gpu-1.rack@2026-12-31") == Suppression("PD0405", "gpu-1.rack", date(2026, 12, 31))


@pytest.mark.parametrize(
    "text", ["PD0405", "PD0405=d", "PD0405@2026-12-31", "PD0405=d@soon", "=d@2026-12-31", "PD9999=d@2026-12-31"]
)
def test_a_wrong_suppression_is_a_usage_error(text: str) -> None:
    """It names what was given and how to write it."""
    with pytest.raises(UsageError) as caught:
        suppression_of(text)
    assert text.partition("=")[0].partition("@")[0] in caught.value.message
    assert caught.value.hint


def test_a_suppression_that_does_nothing_is_told() -> None:
    """A misspelt name, a day that has passed, a cause that is not there."""
    rows = (
        Suppression("PD0701", "dd", _LAST_DAY),
        Suppression("PD0701", "d", date(2026, 6, 1)),
        Suppression("PD0405", "d", _LAST_DAY),
        Suppression("PD0702", "d", _LAST_DAY),
    )
    at = make.evidence(make.PAIR).captured_at
    lines = idle_suppressions(Focus(suppressions=rows), at, ("PD0702",), ("p", "d"))
    assert [line.partition(": ")[2].split()[0] for line in lines] == ["there", "has", "nothing"]
