"""PD0803: a registry and the running processes disagree."""

from __future__ import annotations

from pdctl.diagnose.analyzer import EVERYONE, Analyzer, proves, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.bodies import json
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.registries import EXPLAINS, serving, workers_listed
from pdctl.diagnose.predicates import logged
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event
from pdctl.evidence.records import Place
from pdctl.evidence.urls import host_of, port_of


def _listed(view: InstanceView) -> list[tuple[str, str]]:
    """Return (address, model) of the workers a router lists."""
    return [(str(row["url"]), str(row.get("model_id") or "")) for row in workers_listed(view.raw.gets)]


_NO_MODEL = ("", "unknown", "default", "none")
"""What a router calls the model of a worker that was added by its address alone."""


def _models_of(view: InstanceView) -> tuple[str, ...]:
    """Return the models an instance says it serves."""
    answer = view.get("/v1/models")
    body = json(answer.body) if answer else None
    rows = body.get("data") if isinstance(body, dict) else None
    listed = rows if isinstance(rows, list) else []
    return tuple(str(row["id"]) for row in listed if isinstance(row, dict) and row.get("id"))


def _is_other_model(model: str, own: tuple[str, ...], listed: list[str]) -> bool:
    """Return whether a router's name of a model is none of a worker's; a path and its last part are one model.

    A router that names no model of any worker asks for none; one that names some routes past the others.
    """
    if model.lower() in _NO_MODEL:
        return bool(own) and any(name.lower() not in _NO_MODEL for name in listed)
    return bool(own) and _last_part(model) not in map(_last_part, own)


def _last_part(model: str) -> str:
    return model.rstrip("/").rpartition("/")[2].lower()


def _is_foreign(host: str, hosts: list[str]) -> bool:
    """Return whether an address is none of the engines'. A name and a number may be one machine."""
    are_numbers = all(part.replace(".", "").isdigit() and not part.startswith("127.") for part in (host, *hosts))
    return host not in hosts and are_numbers


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
                and _is_foreign(host_of(url), [host_of(one.raw.url) for one in case.engines])
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
        own = _models_of(worker)
        if _is_other_model(model, own, [name for _, name in rows]):
            return yes(f"{view.name} lists {worker.name} under model {model}, it serves {own[0]}", Kind.HTTP, place)
        if worker.is_gone:
            return yes(f"{view.name} lists {url}, but {worker.name} is gone", Kind.HTTP, place)
    if rows:
        return no(f"the {len(rows)} workers that {view.name} lists exist", Kind.HTTP, place, len(rows))
    return unknown(f"{view.name} shows no list of workers")


def _missing_though_alive(case: Case, view: InstanceView) -> Answer:
    """A type is missing in the registry while its worker answers."""
    for answer in view.raw.gets:
        missing = _missing_types(json(answer.body))
        for role in missing:
            workers = [one for one in case.engines if one.role == role]
            if (
                workers
                and all(serving(one) for one in workers)
                and not any(one.is_refusing or one.is_hanging for one in workers)
            ):
                text = f"{view.name} {answer.path} misses {role}, but {workers[0].name} answers"
                return yes(text, Kind.HTTP, Place(f"{view.name}/http.toml", pointer=answer.path))
            if workers:
                return no(f"{role} is missing because {workers[0].name} does not serve", Kind.HTTP)
    return unknown(f"{view.name} does not say what is missing")


def _missing_types(body: object) -> list[str]:
    """Return what an answer, however deep, says is missing."""
    found: list[str] = []
    rest = [body]
    while rest:
        value = rest.pop(0)
        if isinstance(value, dict):
            own = value.get("missing_worker_types")
            found += [str(item) for item in own] if isinstance(own, list) else []
            rest += value.values()
        elif isinstance(value, list):
            rest += value
    return found


def _lease_lost(case: Case, view: InstanceView) -> Answer:
    for one in case.views:
        found = one.telling(Event.KEEP_ALIVE_FAILED)
        if found and one.is_alive:
            return yes(f"{one.name} lives, but: {found[-1].text[:90]}", Kind.LOG, found[-1].place, len(found))
    return unknown("no worker says that its registration lapsed")


def _never_registered(case: Case, view: InstanceView) -> Answer:
    """A prefill rank gave up registering, and serves HTTP all the same (sglang #23430)."""
    for one in case.prefills:
        found = one.telling(Event.REGISTRATION_FAILED)
        if found and one.is_alive is not False:
            return yes(f"{one.name}: {found[-1].text[:90]}", Kind.LOG, found[-1].place, len(found))
    return unknown("no rank says that it could not register")


def _removed(case: Case, view: InstanceView) -> Answer:
    return logged(view, Event.DISCOVERY_REMOVED, what="a worker removed from discovery")


def _failed_once(case: Case, view: InstanceView) -> Answer:
    for one in case.views:
        if found := one.events(Event.KEEP_ALIVE_FAILED, Event.REGISTRATION_FAILED):
            return yes(f"{one.name}: {found[-1].text[:90]}", Kind.LOG, found[-1].place, len(found))
    return unknown("no worker says that its registration failed")


ANALYZER = Analyzer(
    code="PD0803",
    roles=EVERYONE,
    inputs=(Kind.HTTP, Kind.LOG, Kind.PROCESS, Kind.SOURCE, Kind.TOPOLOGY),
    explains=EXPLAINS,
    checks=(
        proves("the list has a worker that cannot serve", _lists_the_wrong),
        proves("a living worker is missing", _missing_though_alive),
        proves("a living worker lost its registration", _lease_lost),
        proves("a rank never registered", _never_registered),
        suggests("a worker was removed from discovery", _removed),
        suggests("a registration failed once", _failed_once),
    ),
)
