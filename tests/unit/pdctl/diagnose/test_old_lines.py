"""A line of the log proves a state only while the state still shows: it is young, or nothing succeeded since."""

from __future__ import annotations

import pytest

from pdctl.diagnose.case import Case
from pdctl.dialects.signals import Event
from tests.unit.pdctl.diagnose import incident as make

PROCESS = '[[process]]\npid = 5\nstate = "S"\nstarted_at = 2026-06-10T08:00:00Z\n'
STEP = "[{at} TP0] Decode batch, #running-req: 1, #token: 9, token usage: 0.01, #queue-req: 0\n"
FAILED_PROBE = '[[probe]]\nat = 2026-06-19T14:29:30Z\nvia = "router"\nstatus = 500\ntook_ms = 30\n'
DONE = "sglang:num_requests_total {}\n"

LINES = [
    ("PD0201", "RuntimeError: Page size mismatch: prefill 16, decode 64"),
    ("PD0202", "RuntimeError: KV cache dtype mismatch: prefill fp8, decode bf16"),
    ("PD0703", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    ("PD0803", "Prefill instance failed to register to bootstrap server: 500"),
]


def status(code: str, line: str, at: str, *steps: str, done: tuple[int, int] = (7, 7)) -> str:
    """Return what a prefill's line of that time is worth for a cause, with its steps of these times."""
    log = f"[{at} TP0] {line}\n" + "".join(STEP.format(at=step) for step in steps)
    counters = {"p__metrics_prev_txt": DONE.format(done[0]), "p__metrics_txt": DONE.format(done[1])}
    files = {
        "p__log_txt": log,
        "p__process_toml": PROCESS,
        "p__http_toml": make.HEALTHY_GET,
        "probe_toml": FAILED_PROBE,
    }
    return make.status(make.report(make.PAIR, **files, **counters), code)


@pytest.mark.parametrize(("code", "line"), LINES)
def test_a_line_proves_while_nothing_succeeded_since(code: str, line: str) -> None:
    """A young line proves; an old one does as long as no step and no request came after it."""
    assert status(code, line, "2026-06-19 14:29:00", "2026-06-19 14:29:50") == "established"
    assert status(code, line, "2026-06-16 14:29:00") == "established"
    assert status(code, line, "2026-06-16 14:29:00", "2026-06-18 11:00:00") != "established"
    assert status(code, line, "2026-06-16 14:29:00", done=(7, 9)) != "established"


def test_what_another_replica_does_is_no_success_of_this_one() -> None:
    """A data-parallel rank that could not register stays so while its sibling works."""
    line = "[2026-06-16 14:29:00 DP1 TP1] Prefill instance failed to register to bootstrap server: 500\n"
    step = STEP.format(at="2026-06-19 14:29:50")
    for rank, still_tells in (("DP0 TP0", True), ("DP1 TP1", False)):
        log = line + step.replace("TP0", rank)
        view = Case(make.evidence(make.PAIR, p__log_txt=log, p__process_toml=PROCESS)).prefills[0]
        assert bool(view.telling(Event.REGISTRATION_FAILED)) == still_tells


@pytest.mark.parametrize("what", ["Shape", "LoRA adapter shape", "Checkpoint key"])
def test_a_mismatch_of_something_else_is_none_of_the_sides(what: str) -> None:
    """Only fields that two sides must share are a contract."""
    log = f"[2026-06-19 14:29:00 TP0] ValueError: {what} mismatch: expected 4, got 5\n"
    view = Case(make.evidence(make.PAIR, p__log_txt=log)).prefills[0]
    assert view.events(Event.MISMATCH) == ()
