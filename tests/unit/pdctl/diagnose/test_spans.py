"""For how long something surely waits, and what counts as progress of a router."""

from __future__ import annotations

from pdctl.diagnose.case import Case
from pdctl.diagnose.symptoms import Symptom
from pdctl.evidence.model import Evidence
from tests.unit.pdctl.diagnose.incident import evidence, instance

DECODE = instance("d", "decode", "vllm")
ROUTER = instance("r", "router", "smg", host=3)
ACTIVE = 'smg_worker_requests_active{worker="http://192.0.2.2:30000"} 4\n'


def kinds(made: Evidence) -> set[tuple[str, str]]:
    """Return (symptom, unit) of the stalls."""
    stalls = (Symptom.STALLED, Symptom.SUSPECTED)
    return {(item.symptom.value, item.unit) for item in Case(made).symptoms if item.symptom in stalls}


def vllm(waiting: int) -> str:
    return f"vllm:num_requests_running 0\nvllm:num_requests_waiting {waiting}\nvllm:iteration_tokens_total_count 7\n"


def test_a_queue_that_was_empty_before_is_suspected_alone() -> None:
    """Its request may have come a moment ago; where nobody tells its age, only a later look decides."""
    files = {"d__metrics_txt": vllm(1)}
    assert ("stalled", "waiting") in kinds(evidence(DECODE, d__metrics_prev_txt=vllm(1), **files))
    assert kinds(evidence(DECODE, d__metrics_prev_txt=vllm(0), **files)) == {("suspected", "waiting")}


def test_a_queue_that_was_empty_before_is_not_as_old_as_the_last_line() -> None:
    """Also where the newest scrape failed: the line was printed before the request came."""
    files = {
        "d__metrics_txt": vllm(1),
        "d__capture_toml": '[[file]]\nname = "metrics.txt"\nstatus = "timeout"\nerror = "too late"\n',
        "d__log_txt": "INFO 06-19 14:29:30 [loggers.py:335] Engine 000: Running: 0 reqs, Waiting: 0 reqs\n",
    }
    assert ("stalled", "waiting") in kinds(evidence(DECODE, d__metrics_prev_txt=vllm(1), **files))
    assert kinds(evidence(DECODE, d__metrics_prev_txt=vllm(0), **files)) == {("suspected", "waiting")}


def router(path: str, before: int, now: int) -> Evidence:
    """Return evidence of a router with four requests in flight, and answers of one kind."""
    line = f'smg_http_responses_total{{path="{path}",status_code="200",error_code=""}} '
    first, second = f"{ACTIVE}{line}{before}\n", f"{ACTIVE}{line}{now}\n"
    return evidence(ROUTER, r__metrics_prev_txt=first, r__metrics_txt=second)


def test_answers_to_health_checks_are_no_progress_of_a_router() -> None:
    """Nor are those to our own GETs: four requests in flight and only /health answered is a stall."""
    assert kinds(router("/health", 10, 90)) == {("stalled", "front_inflight")}


def test_answers_to_requests_are_progress_of_a_router() -> None:
    """One completion in the window is enough."""
    assert kinds(router("/v1/completions", 10, 11)) == set()


def test_a_router_that_streams_long_answers_does_not_stall() -> None:
    """No request ended between the samples, but decode gave tokens all the time."""
    tokens = "vllm:num_requests_running 4\nvllm:generation_tokens_total {}\n"
    made = evidence(
        DECODE + ROUTER,
        d__metrics_prev_txt=tokens.format(100),
        d__metrics_txt=tokens.format(900),
        r__metrics_prev_txt=ACTIVE,
        r__metrics_txt=ACTIVE,
    )
    assert ("stalled", "front_inflight") not in kinds(made)
