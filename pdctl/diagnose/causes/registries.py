"""What routers list, and who of it can serve."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnose.analyzer import FAILURES, STALLS
from pdctl.diagnose.answer import Answer, Kind, unknown, yes
from pdctl.diagnose.bodies import json
from pdctl.diagnose.case import Case
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.evidence.records import Get, Place
from pdctl.evidence.urls import host_of, port_of

EXPLAINS = (
    *STALLS,
    *FAILURES,
    Symptom.REFUSED,
    Symptom.UNHEALTHY,
    Symptom.BYPASSED,
    Symptom.ORPHANED,
    Symptom.CLIENTS_LEFT,
    Symptom.UNEVEN,
)


def serving(view: InstanceView) -> bool | None:
    if view.is_alive is None:
        return None
    return view.is_alive and not view.is_stopped and not view.is_starting and view.health in (None, 200, 503)


def workers_listed(gets: Iterable[Get]) -> list[dict[str, object]]:
    """Return what a router lists of each worker; every row has a `url`."""
    rows: list[object] = []
    for answer in gets:
        body = json(answer.body)
        listed = body.get("workers") if isinstance(body, dict) else None
        rows += listed if isinstance(listed, list) else []
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("url"), str)]


def listed_as(case: Case, row: dict[str, object]) -> InstanceView | None:
    """Return the engine that a router's row is about."""
    address = host_of(str(row["url"])), port_of(str(row["url"]))
    return next((one for one in case.engines if (host_of(one.raw.url), port_of(one.raw.url)) == address), None)


def shuns_the_living(case: Case, view: InstanceView) -> Answer:
    """Ask whether a router counts every worker of a role unhealthy in both samples, all of which say they are well.

    Routers ask every minute and let a worker back in after several good answers (vllm-router 0.1.17, smg 1.13): one
    that began a moment ago may only have to wait.
    """
    place = Place(f"{view.name}/http.toml", pointer="/workers is_healthy")
    now, before = (_shunned(case, gets) for gets in (view.raw.gets, view.raw.gets_prev))
    may_have_to_wait: Answer | None = None
    for role in sorted({one.role for one in now}):
        workers = [one for one in case.engines if one.role == role]
        if not all(one in now and one in before and one.health == 200 and serving(one) for one in workers):
            continue
        youngest = min((one.age_of_process_s or 0.0 for one in workers), default=0.0)
        text = f"{view.name} counts {workers[0].name} unhealthy, which says that it is well"
        if youngest < LIMITS.readmission_s:
            may_have_to_wait = unknown(f"{text}, but may have begun since the router looked")
            continue
        return yes(text, Kind.HTTP, place, len(workers))
    return may_have_to_wait or unknown(f"{view.name} does not say that it shuns a worker that is well")


def _shunned(case: Case, gets: Iterable[Get]) -> list[InstanceView]:
    found = (listed_as(case, row) for row in workers_listed(gets) if row.get("is_healthy") is False)
    return [one for one in found if one is not None]
