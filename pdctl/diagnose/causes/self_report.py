"""What an engine says about itself: which of its threads are down, and that it cannot do its part.

Our own engine supervises its threads (engine/observe/threads.py): a crash is answered by a restart within 5 s. So one
thread that is down in one sample may be on its way back; that its restarts did not grow, or grow and grow, decides.
"""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnose.analyzer import Ask
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.bodies import json
from pdctl.diagnose.case import Case
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.pdctl_signals import THREAD_ALIVE, THREAD_RESTARTS
from pdctl.evidence.records import Exposition, Get, Place, Sample

_CRASHES_AGAIN = 2
"""Restarts between two samples from which on a thread does not do its work, though it may be up at the moment."""


def reported_dead(thread: str) -> Ask:
    """Ask whether the engine says that its thread of that name is down, and stays so."""

    def ask(case: Case, view: InstanceView) -> Answer:
        now = _is_up(view.raw.gets, view.raw.metrics, thread)
        if now is None:
            return unknown(f"{view.name} does not report a thread {thread}")
        place, kind = _place(view, thread)
        risen = _restarts(view, thread)
        if risen is not None and risen >= _CRASHES_AGAIN:
            text = f"{view.name}: its thread {thread} crashes again and again, +{risen:g} restarts"
            return yes(text, Kind.METRICS, place, risen, "restarts")
        if now:
            return no(f"{view.name}: its thread {thread} runs", kind, place, 1)
        before = _is_up(view.raw.gets_prev, view.raw.metrics_prev, thread)
        if before and risen:
            return unknown(f"{view.name} is restarting its thread {thread}")
        return yes(f"{view.name}: its thread {thread} is dead and not restarted", kind, place, 0)

    return ask


def not_reported_alive(thread: str) -> Ask:
    """Ask that the engine does not say that this thread runs; holds where an engine reports no threads."""

    def ask(case: Case, view: InstanceView) -> Answer:
        said = reported_dead(thread)(case, view)
        return said if said.is_false else yes(f"{view.name} does not say that its {thread} runs", Kind.HTTP)

    return ask


def refused_peers(view: InstanceView) -> dict[str, str]:
    """Return peer -> why this engine refuses it, by its /health."""
    refused = _health(view.raw.gets).get("refused_peers")
    return {str(peer): str(why) for peer, why in refused.items()} if isinstance(refused, dict) else {}


def nobody_unfit(case: Case, view: InstanceView) -> Answer:
    """Ask that no engine says of itself that it cannot do its part: a router is right not to use such a one."""
    for engine in case.engines:
        report = _health(engine.raw.gets)
        problems = report.get("problems")
        if report.get("status") == "unfit" and isinstance(problems, list) and problems:
            place = Place(f"{engine.name}/http.toml", pointer="/health")
            return no(f"{engine.name} says that it is unfit: {problems[0]}", Kind.HTTP, place, len(problems))
        down = [sample.labels.get("thread") for sample in _rows(engine.raw.metrics, THREAD_ALIVE) if sample.value == 0]
        if down:
            place = Place(f"{engine.name}/metrics.txt", pointer=THREAD_ALIVE)
            return no(f"{engine.name} says that its thread {down[0]} is down", Kind.METRICS, place, 0)
    return yes("no engine says that it is unfit", Kind.HTTP)


def _is_up(gets: Iterable[Get], scrape: Exposition | None, thread: str) -> bool | None:
    threads = _health(gets).get("threads")
    if isinstance(threads, dict) and isinstance(threads.get(thread), bool):
        return bool(threads[thread])
    value = _value(scrape, THREAD_ALIVE, thread)
    return None if value is None else value > 0


def _place(view: InstanceView, thread: str) -> tuple[Place, Kind]:
    """Return where `_is_up` read it."""
    threads = _health(view.raw.gets).get("threads")
    if isinstance(threads, dict) and thread in threads:
        return Place(f"{view.name}/http.toml", pointer="/health threads"), Kind.HTTP
    return Place(f"{view.name}/metrics.txt", pointer=THREAD_ALIVE), Kind.METRICS


def _restarts(view: InstanceView, thread: str) -> float | None:
    """Return by how much the thread's restarts grew between the samples."""
    now = _value(view.raw.metrics, THREAD_RESTARTS, thread)
    before = _value(view.raw.metrics_prev, THREAD_RESTARTS, thread)
    return None if now is None or before is None else now - before


def _value(scrape: Exposition | None, series: str, thread: str) -> float | None:
    return next((sample.value for sample in _rows(scrape, series) if sample.labels.get("thread") == thread), None)


def _rows(scrape: Exposition | None, series: str) -> tuple[Sample, ...]:
    return scrape.series.get(series, ()) if scrape else ()


def _health(gets: Iterable[Get]) -> dict[str, object]:
    body = json(next((item.body for item in gets if item.path == "/health"), None))
    return body if isinstance(body, dict) else {}
