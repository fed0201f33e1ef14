"""PD0801-PD0803, PD0805: router, registry and workers disagree."""

from __future__ import annotations

import re

import msgspec

from pdctl.diagnose.analyzer import EVERYONE, FAILURES, STALLS, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.addresses import host_of, port_of
from pdctl.diagnose.hidden import bypassed, prefill_unused
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import logged
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Event, Gauge
from pdctl.evidence.records import Place

_EXPLAINS = (
    *STALLS,
    *FAILURES,
    Symptom.REFUSED,
    Symptom.UNHEALTHY,
    Symptom.BYPASSED,
    Symptom.ORPHANED,
    Symptom.CLIENTS_LEFT,
    Symptom.UNEVEN,
)


def _serving(view: InstanceView) -> bool | None:
    if view.is_alive is None:
        return None
    is_running = view.is_alive and not any(item.state == "T" for item in view.processes)
    return is_running and not view.is_starting and view.health in (None, 200, 503)


def _workers_live(case: Case, view: InstanceView) -> Answer:
    engines = case.engines
    states = {item.name: _serving(item) for item in engines}
    dead = [name for name, state in states.items() if state is False]
    roles = {item.role for item in engines}
    alive_roles = {item.role for item in engines if states[item.name]}
    if roles and roles == alive_roles:
        return yes(
            f"{sum(1 for state in states.values() if state)} workers live and are not starting", Kind.HTTP
        )
    if dead and any(
        role not in alive_roles and all(states[item.name] is False for item in engines if item.role == role)
        for role in roles
    ):
        return no(f"{dead[0]} is gone, stopped or starting", Kind.HTTP)
    return unknown("nothing tells whether the workers live")


# PD0801


def _says_none(case: Case, view: InstanceView) -> Answer:
    found = view.events(Event.ROUTER_NO_WORKER)
    if len(found) >= LIMITS.router_refused or (found and case.has(Symptom.PROBE_FAILED)):
        return yes(f"{view.name}: {found[-1].text[:120]}", Kind.LOG, found[-1].place, len(found))
    empty = _lists_nobody(view)
    return empty if empty.is_true else unknown(f"{view.name} does not say that it has no worker")


def _lists_nobody(view: InstanceView) -> Answer:
    for answer in view.raw.gets:
        body = _json(answer.body)
        if not isinstance(body, dict):
            continue
        lists = [
            body.get(key)
            for key in ("instances", "workers", "urls", "data")
            if isinstance(body.get(key), list)
        ]
        if lists and not lists[0] and answer.path != "/v1/models":
            return yes(
                f"{view.name} {answer.path} lists no worker",
                Kind.HTTP,
                Place(f"{view.name}/http.toml", pointer=answer.path),
                0,
            )
    ready = view.gauge(Gauge.MODEL_READY)
    if ready is not None and ready.value == 0:
        return yes(f"{view.name}: no model is ready", Kind.METRICS, ready.place, 0)
    return unknown(f"{view.name} shows no list of workers")


def _json(body: str | None) -> object:
    if not body:
        return None
    try:
        value: object = msgspec.json.decode(body.encode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value


def _unhealthy(case: Case, view: InstanceView) -> Answer:
    return logged(view, Event.ROUTER_UNHEALTHY, what="a worker marked unhealthy")


def _answers_503(case: Case, view: InstanceView) -> Answer:
    probe = case.last_probe
    if probe is not None and probe.status in (503, 404):
        return yes(f"the probe got {probe.status}", Kind.PROBE, value=probe.status)
    ready = view.get("/readiness", "/ready", "/health")
    if ready is not None and ready.status == 503:
        return yes(f"{view.name} {ready.path} says 503", Kind.HTTP, value=503)
    return unknown("no 503 was seen")


NO_WORKER = Analyzer(
    code="PD0801",
    roles=("router",),
    inputs=(Kind.LOG, Kind.HTTP, Kind.METRICS, Kind.PROBE, Kind.PROCESS),
    explains=_EXPLAINS,
    checks=(
        requires("the workers live", _workers_live),
        proves("the router says it has no worker", _says_none),
        suggests("workers are marked unhealthy", _unhealthy),
        suggests("requests get 503", _answers_503),
        suggests("it lists no worker", lambda case, view: _lists_nobody(view)),
    ),
)


# PD0802


def _dials_elsewhere(case: Case, view: InstanceView) -> Answer:
    """It is refused at an address where no worker listens, while the worker on that host listens elsewhere."""
    for item in (*view.events(Event.ROUTER_UPSTREAM), *view.events(Event.ROUTED)):
        url = item.group("url") or _address(item.text)
        worker = (
            next((one for one in case.engines if one.raw.url and host_of(one.raw.url) == host_of(url)), None)
            if url
            else None
        )
        if (
            worker is None
            or port_of(url) is None
            or any(
                port_of(one.raw.url) == port_of(url)
                for one in case.views
                if host_of(one.raw.url) == host_of(url)
            )
        ):
            continue
        if port_of(url) == worker.raw.bootstrap_port or worker.is_alive is False:
            continue
        return yes(
            f"{view.name} dials {url}, {worker.name} listens on {port_of(worker.raw.url)}",
            Kind.LOG,
            item.place,
            port_of(url),
        )
    return unknown("no request is known to go to a wrong address")


def _address(text: str) -> str:
    found = re.search(r"(\d+\.\d+\.\d+\.\d+:\d+)(?=\D{0,40}(?:refused|connect))", text)
    return found[1] if found else ""


def _configured_elsewhere(case: Case, view: InstanceView) -> Answer:
    flags = view.raw.source.flags if view.raw.source else ()
    targets = [
        flags[index + 1]
        for index, word in enumerate(flags)
        if word in ("--prefill", "--decode") and index + 1 < len(flags)
    ]
    known = {(host_of(one.raw.url), port_of(one.raw.url)) for one in case.engines if one.raw.url}
    if not targets or not known:
        return unknown("the router's targets are not known")
    for target in targets:
        if (host_of(target), port_of(target)) not in known and host_of(target) in {host for host, _ in known}:
            return yes(
                f"{view.name} is told {target}, where no worker listens",
                Kind.SOURCE,
                Place(f"{view.name}/source.toml"),
            )
    return unknown("the router's targets are workers")


def _decode_alone(case: Case, view: InstanceView) -> Answer:
    """Decode asks for KV of the other side and never gets any; prefill is not asked."""
    for decode in case.decodes:
        found = bypassed(decode)
        if found is None:
            continue
        still = [
            one
            for one in case.prefills
            if (rise := one.rise(Counter.REQUESTS_DONE)) is not None and rise.value == 0
        ]
        idle = [one for one in case.prefills if one.total(Counter.REQUESTS_DONE) is not None]
        if (still or not idle) and all(one.is_alive is not False for one in case.prefills):
            return yes(
                f"{decode.name} asked for {found[0]:g} tokens of prefill's KV and got none; prefill has no request",
                Kind.METRICS,
                value=found[0],
            )
    alone = prefill_unused(case.prefills, case.decodes)
    if alone is not None:
        return yes(
            f"decode finished {alone:g} requests, prefill was asked for none", Kind.METRICS, value=alone
        )
    return unknown("decode is not known to work alone")


def _decided_alone(case: Case, view: InstanceView) -> Answer:
    alone, both = view.rise(Counter.DECODE_ONLY), view.rise(Counter.PREFILL_AND_DECODE)
    if alone is None:
        return unknown("no scheduler tells what it decided")
    if not case.prefills or any(one.is_alive is False or not _asked_for_none(one) for one in case.prefills):
        return unknown("there is no living, unused prefill")
    text = f"{view.name} decided {alone.value:g} times for decode alone, {both.value if both else 0:g} times for both"
    if alone.value >= LIMITS.bypass_requests and (both is None or both.value == 0):
        return yes(text, Kind.METRICS, alone.place, alone.value)
    return no(text, Kind.METRICS, alone.place, alone.value)


def _asked_for_none(view: InstanceView) -> bool:
    rise = view.rise(Counter.REQUESTS_DONE)
    return rise is None or rise.value == 0


def _skips(case: Case, view: InstanceView) -> Answer:
    return logged(view, Event.PREFILL_SKIPPED, what="a skipped prefill")


MISROUTE = Analyzer(
    code="PD0802",
    roles=EVERYONE,
    inputs=(Kind.LOG, Kind.SOURCE, Kind.METRICS, Kind.HTTP, Kind.PROCESS, Kind.TOPOLOGY),
    explains=_EXPLAINS,
    checks=(
        proves("it dials an address where nobody listens", _dials_elsewhere),
        proves("it is told an address where nobody listens", _configured_elsewhere),
        proves("decode works alone", _decode_alone),
        proves("the scheduler decides for decode alone", _decided_alone),
        suggests("prefill is skipped", _skips),
    ),
)


# PD0803


def _listed(view: InstanceView) -> list[tuple[str, str]]:
    """Return (address, model) of the workers a router lists."""
    found: list[tuple[str, str]] = []
    for answer in view.raw.gets:
        body = _json(answer.body)
        rows = body.get("workers") if isinstance(body, dict) else None
        found.extend(
            (str(row["url"]), str(row.get("model_id") or ""))
            for row in (rows if isinstance(rows, list) else [])
            if isinstance(row, dict) and isinstance(row.get("url"), str)
        )
    return found


def _model_of(view: InstanceView) -> str:
    """Return the model an instance says it serves."""
    answer = view.get("/v1/models")
    body = _json(answer.body) if answer else None
    rows = body.get("data") if isinstance(body, dict) else None
    first = rows[0] if isinstance(rows, list) and rows else None
    return str(first.get("id", "")) if isinstance(first, dict) else ""


def _lists_the_wrong(case: Case, view: InstanceView) -> Answer:
    place = Place(f"{view.name}/http.toml", pointer="/workers")
    rows = _listed(view)
    for url, model in rows:
        worker = next(
            (
                one
                for one in case.engines
                if (host_of(one.raw.url), port_of(one.raw.url)) == (host_of(url), port_of(url))
            ),
            None,
        )
        if worker is None:
            if (
                case.engines
                and all(one.raw.url for one in case.engines)
                and host_of(url) not in {host_of(one.raw.url) for one in case.engines}
            ):
                return yes(f"{view.name} lists {url}, which is no instance any more", Kind.HTTP, place)
            continue
        rank = worker.follows
        if rank is not None:
            return yes(
                f"{view.name} routes to {url}, but {worker.name} is node rank {rank}, no leader",
                Kind.HTTP,
                place,
            )
        own = _model_of(worker)
        if model and own and model != own:
            return yes(
                f"{view.name} lists {worker.name} under model {model}, it serves {own}", Kind.HTTP, place
            )
        if worker.is_gone:
            return yes(f"{view.name} lists {url}, but {worker.name} is gone", Kind.HTTP, place)
    if rows:
        return no(f"the {len(rows)} workers that {view.name} lists exist", Kind.HTTP, place, len(rows))
    return unknown(f"{view.name} shows no list of workers")


def _missing_though_alive(case: Case, view: InstanceView) -> Answer:
    """A type is missing in the registry while its worker answers."""
    for answer in view.raw.gets:
        missing = _missing_types(_json(answer.body))
        for role in missing:
            workers = [one for one in case.engines if one.role == role]
            if (
                workers
                and all(_serving(one) for one in workers)
                and not any(one.is_refusing or one.is_hanging for one in workers)
            ):
                text = f"{view.name} {answer.path} misses {role}, but {workers[0].name} answers"
                return yes(text, Kind.HTTP, Place(f"{view.name}/http.toml", pointer=answer.path))
            if workers:
                return no(f"{role} is missing because {workers[0].name} does not serve", Kind.HTTP)
    return unknown(f"{view.name} does not say what is missing")


def _missing_types(body: object) -> list[str]:
    if isinstance(body, dict):
        own = body.get("missing_worker_types")
        found = [str(item) for item in own] if isinstance(own, list) else []
        return found + [item for value in body.values() for item in _missing_types(value)]
    if isinstance(body, list):
        return [item for value in body for item in _missing_types(value)]
    return []


def _lease_lost(case: Case, view: InstanceView) -> Answer:
    for one in case.views:
        found = one.events(Event.KEEP_ALIVE_FAILED)
        if found and one.is_alive:
            return yes(f"{one.name} lives, but: {found[-1].text[:90]}", Kind.LOG, found[-1].place, len(found))
    return unknown("no worker says that its registration lapsed")


def _never_registered(case: Case, view: InstanceView) -> Answer:
    """A prefill rank gave up registering, and serves HTTP all the same (sglang #23430)."""
    for one in case.prefills:
        found = one.events(Event.REGISTRATION_FAILED)
        if found and one.is_alive is not False:
            return yes(f"{one.name}: {found[-1].text[:90]}", Kind.LOG, found[-1].place, len(found))
    return unknown("no rank says that it could not register")


def _removed(case: Case, view: InstanceView) -> Answer:
    return logged(view, Event.DISCOVERY_REMOVED, what="a worker removed from discovery")


STALE = Analyzer(
    code="PD0803",
    roles=EVERYONE,
    inputs=(Kind.HTTP, Kind.LOG, Kind.PROCESS, Kind.SOURCE, Kind.TOPOLOGY),
    explains=_EXPLAINS,
    checks=(
        proves("the list has a worker that cannot serve", _lists_the_wrong),
        proves("a living worker is missing", _missing_though_alive),
        proves("a living worker lost its registration", _lease_lost),
        proves("a rank never registered", _never_registered),
        suggests("a worker was removed from discovery", _removed),
    ),
)


# PD0805


def _nowhere(case: Case, view: InstanceView) -> Answer:
    front = view.gauge(Gauge.FRONT_INFLIGHT)
    if front is None:
        return unknown(f"requests in flight at {view.name} are not known")
    orphans = case.orphans(view)
    if orphans is None:
        return unknown("the workers' requests are not known, or they have them, or requests end")
    return yes(
        f"{orphans[0]:g} requests in flight at {view.name}, {orphans[1]:g} on the workers",
        Kind.METRICS,
        front.place,
        orphans[0],
    )


def _no_handler(case: Case, view: InstanceView) -> Answer:
    lines = [item for one in case.engines for item in one.events(Event.NO_HANDLER)]
    if lines:
        return yes(
            f"workers dropped {len(lines)} requests: {lines[-1].text[:80]}",
            Kind.LOG,
            lines[-1].place,
            len(lines),
        )
    return unknown("no worker says that it dropped a request")


ORPHANS = Analyzer(
    code="PD0805",
    roles=("router",),
    inputs=(Kind.METRICS, Kind.LOG),
    explains=_EXPLAINS,
    checks=(
        proves("requests that no worker has", _nowhere),
        suggests("workers dropped requests", _no_handler),
    ),
)
ANALYZERS = (NO_WORKER, MISROUTE, STALE, ORPHANS)
