"""PD0801: the router sees no worker though workers live."""

from __future__ import annotations

from pdctl.diagnose.analyzer import Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.bodies import json
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.registries import EXPLAINS, serving, shuns_the_living
from pdctl.diagnose.causes.self_report import nobody_unfit
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import logged
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event, Gauge
from pdctl.evidence.records import Place


def _workers_live(case: Case, view: InstanceView) -> Answer:
    engines = case.engines
    states = {item.name: serving(item) for item in engines}
    dead = [name for name, state in states.items() if state is False]
    roles = {item.role for item in engines}
    alive_roles = {item.role for item in engines if states[item.name]}
    if roles and roles == alive_roles:
        return yes(f"{sum(1 for state in states.values() if state)} workers live and are not starting", Kind.HTTP)
    if dead and any(
        role not in alive_roles and all(states[item.name] is False for item in engines if item.role == role)
        for role in roles
    ):
        return no(f"{dead[0]} is gone, stopped or starting", Kind.HTTP)
    return unknown("nothing tells whether the workers live")


def _says_none(case: Case, view: InstanceView) -> Answer:
    found = view.events(Event.ROUTER_NO_WORKER)
    if len(found) >= LIMITS.router_refused or (found and case.has(Symptom.PROBE_FAILED)):
        return yes(f"{view.name}: {found[-1].text[:120]}", Kind.LOG, found[-1].place, len(found))
    empty = _lists_nobody(view)
    # An empty list is right when the workers are gone.
    return (
        empty
        if empty.is_true and _workers_live(case, view).is_true
        else unknown(f"{view.name} does not say that it has no worker")
    )


def _lists_nobody(view: InstanceView) -> Answer:
    for answer in view.raw.gets:
        body = json(answer.body)
        if not isinstance(body, dict):
            continue
        lists = [body.get(key) for key in ("instances", "workers", "urls", "data") if isinstance(body.get(key), list)]
        if lists and not lists[0] and answer.path != "/v1/models":
            return yes(
                f"{view.name} {answer.path} lists no worker",
                Kind.HTTP,
                Place(f"{view.name}/http.toml", pointer=answer.path),
                0,
            )
    return unknown(f"{view.name} shows no list of workers")


def _counts_healthy(case: Case, view: InstanceView) -> Answer:
    """Ask that it does not count all its workers healthy: what it logged before they came back is over."""
    ready = view.get("/readiness")
    body = json(ready.body) if ready is not None and ready.status == 200 else None
    healthy, total = (
        (body.get("healthy_workers"), body.get("total_workers")) if isinstance(body, dict) else (None, None)
    )
    place = Place(f"{view.name}/http.toml", pointer="/readiness healthy_workers")
    if isinstance(healthy, int) and isinstance(total, int) and healthy == total > 0:
        return no(f"{view.name} counts {healthy} of {total} workers healthy", Kind.HTTP, place, healthy)
    return yes(f"{view.name} does not count all its workers healthy", Kind.HTTP)


def _no_model_ready(case: Case, view: InstanceView) -> Answer:
    """Its model is not ready: it lost its workers, or they never registered."""
    ready = view.gauge(Gauge.MODEL_READY)
    if ready is None:
        return unknown(f"{view.name} does not tell whether a model is ready")
    text = f"{view.name}: {'no' if ready.value == 0 else 'a'} model is ready"
    return (yes if ready.value == 0 else no)(text, Kind.METRICS, ready.place, ready.value)


def _unhealthy(case: Case, view: InstanceView) -> Answer:
    return logged(view, Event.ROUTER_UNHEALTHY, what="a worker marked unhealthy")


def _answers_503(case: Case, view: InstanceView) -> Answer:
    probe = case.last_probe
    is_past_it = probe is not None and any(one.name in probe.via.split(" -> ") for one in case.engines)
    if probe is not None and not is_past_it and probe.status in (503, 404):
        return yes(f"the probe got {probe.status}", Kind.PROBE, value=probe.status)
    ready = view.get("/readiness", "/ready", "/health")
    if ready is not None and ready.status == 503:
        return yes(f"{view.name} {ready.path} says 503", Kind.HTTP, value=503)
    return unknown("no 503 was seen")


def _says_so(case: Case, view: InstanceView) -> Answer:
    """Ask for the router's own word on its workers: requests that fail, and a model not ready, may be their doing."""
    signs = (_says_none(case, view), _unhealthy(case, view), _lists_nobody(view), shuns_the_living(case, view))
    return next((sign for sign in signs if sign.is_true), unknown(f"{view.name} says nothing of its workers"))


ANALYZER = Analyzer(
    code="PD0801",
    roles=("router",),
    inputs=(Kind.LOG, Kind.HTTP, Kind.METRICS, Kind.PROBE, Kind.PROCESS),
    explains=EXPLAINS,
    checks=(
        requires("the workers live", _workers_live),
        requires("no worker says that it is unfit", nobody_unfit),
        proves("the router says it has no worker", _says_none),
        proves("it counts workers unhealthy that are well", shuns_the_living),
        suggests("workers are marked unhealthy", _unhealthy),
        requires("it lists or names no worker", _says_so),
        requires("it does not count them healthy now", _counts_healthy),
        suggests("requests get 503", _answers_503),
        suggests("no model is ready", _no_model_ready),
        suggests("it lists no worker", lambda case, view: _lists_nobody(view)),
    ),
)
