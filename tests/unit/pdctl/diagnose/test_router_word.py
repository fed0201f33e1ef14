"""A router that counts a worker unhealthy which says that it is well: what clients get, what a pair proves of it."""

from __future__ import annotations

import pytest

from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.registries import shuns_the_living
from pdctl.diagnose.report import Report
from tests.unit.pdctl.diagnose import incident as make

TOPOLOGY = (
    make.instance("p", "prefill", "vllm", host=1, port=8100)
    + make.instance("d", "decode", "vllm", host=2, port=8200)
    + make.instance("r", "router", "vllm-router", host=3, port=8000)
)
LONG_AGO, JUST_NOW = "2026-06-19T13:00:00Z", "2026-06-19T14:28:00Z"


def gets(*answers: tuple[str, int, str]) -> str:
    """Return the file of some answers."""
    rows = (f"[[get]]\npath = \"{path}\"\nstatus = {status}\nbody = '''{body}'''\n" for path, status, body in answers)
    return "".join(rows)


def workers(*, is_prefill_healthy: bool) -> str:
    """Return what vllm-router 0.1.17 answered after a prefill had been killed and was back."""
    word = "true" if is_prefill_healthy else "false"
    rows = (
        '{"url":"http://192.0.2.2:8200","model_id":"unknown","worker_type":"decode","is_healthy":true}',
        f'{{"url":"http://192.0.2.1:8100","model_id":"unknown","worker_type":"prefill","is_healthy":{word}}}',
    )
    status = (200, "OK") if is_prefill_healthy else (503, 'Unhealthy servers: ["Prefill: http://192.0.2.1:8100"]')
    return gets(("/health", *status), ("/workers", 200, f'{{"workers":[{",".join(rows)}]}}'))


def report(
    *,
    via: str = "p -> d",
    began: str = LONG_AGO,
    before: bool = False,
    now: bool = False,
    prefill: int = 200,
    router: str | None = None,
) -> Report:
    """Return the report on two samples of the router, and a probe that passed that way."""
    process = f'[[process]]\npid = 5\nstate = "S"\nstarted_at = {began}\n'
    probe = f'[[probe]]\nat = {make.CAPTURED}\nvia = "{via}"\nstatus = 200\ntook_ms = 900.0\noutput = "close"\n'
    return make.report(
        TOPOLOGY,
        p__http_toml=gets(("/health", prefill, "")),
        d__http_toml=gets(("/health", 200, "")),
        p__process_toml=process,
        d__process_toml=process,
        r__process_toml=process,
        r__http_toml=router or workers(is_prefill_healthy=now),
        r__http_prev_toml=router or workers(is_prefill_healthy=before),
        probe_toml=probe,
    )


def test_a_request_beside_the_router_does_not_prove_it() -> None:
    """The pair answers, clients get 503: that is not healthy, and not for want of traffic."""
    said = report(began=JUST_NOW)
    assert said.verdict == "unknown"
    assert [cause.code for cause in said.firm] == []


def test_a_request_through_the_router_does() -> None:
    """Whatever its /health complains of, what clients send gets through."""
    assert report(via="r", began=JUST_NOW).verdict == "healthy"


def test_a_router_without_a_health_endpoint_says_nothing_of_itself() -> None:
    """404 is no complaint: the request beside it decides, as where there is no router."""
    silent = gets(("/health", 404, "not found"))
    assert report(began=JUST_NOW, router=silent).verdict == "healthy"


def test_a_router_that_never_lets_a_worker_in_again_is_named() -> None:
    """The worker serves for an hour and says so; the router shuns it in both samples."""
    first = report().firm[0]
    assert (first.code, first.subject.instance, first.confidence) == ("PD0801", "r", "established")


@pytest.mark.parametrize(
    "but",
    [{"began": JUST_NOW}, {"before": True}, {"now": True, "before": True}, {"prefill": 503}],
    ids=["it began a moment ago", "a minute ago it was well", "it is counted well", "it says itself that it is unwell"],
)
def test_otherwise_the_router_is_not_blamed(but: dict[str, bool]) -> None:
    """It may have to look again, it does look, or it is right."""
    assert "PD0801" not in [cause.code for cause in report(**but).firm]  # type: ignore[arg-type]


@pytest.mark.parametrize("young", ["p", "d"])
def test_a_role_that_may_have_to_wait_hides_no_other(young: str) -> None:
    """One side began a moment ago, the other is shunned for an hour: in whatever order they are looked at."""
    rows = ",".join(
        f'{{"url":"http://192.0.2.{host}:8{host}00","worker_type":"{role}","is_healthy":false}}'
        for host, role in ((1, "prefill"), (2, "decode"))
    )
    files = {f"r/http{kind}.toml": gets(("/workers", 200, f'{{"workers":[{rows}]}}')) for kind in ("", ".prev")}
    for name in ("p", "d"):
        began = JUST_NOW if name == young else LONG_AGO
        files[f"{name}/process.toml"] = f'[[process]]\npid = 5\nstate = "S"\nstarted_at = {began}\n'
        files[f"{name}/http.toml"] = gets(("/health", 200, ""))
    case = Case(make.evidence(TOPOLOGY, **files))
    answer = shuns_the_living(case, case.routers[0])
    assert answer.is_true
    assert f"counts {'d' if young == 'p' else 'p'} unhealthy" in answer.text
