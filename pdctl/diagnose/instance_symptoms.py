"""What is wrong with one instance as such, and what the probes showed."""

from __future__ import annotations

from pdctl.diagnose.bodies import json
from pdctl.diagnose.departures import departures
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.rooms import cut_short
from pdctl.diagnose.symptoms import Observed, Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Event
from pdctl.evidence.model import Evidence
from pdctl.evidence.records import Get, Place


def instance_symptoms(view: InstanceView) -> list[Observed]:
    """Return what is wrong with one instance as such."""
    found: list[Observed] = []

    def add(kind: Symptom, unit: str, text: str, value: float | None = None, place: Place | None = None) -> None:
        found.append(Observed(kind, view.name, unit, f"{view.name}: {text}", value, place))

    if view.is_starting:
        add(Symptom.STARTING, "process", "still loads or compiles")
    elif view.is_alive is False:
        add(Symptom.GONE, "process", "no process answers")
    if view.is_stopped:
        add(Symptom.STOPPED, "process", "its processes are stopped (state T)")
    elif view.is_hanging and view.is_alive is not True:
        add(Symptom.STOPPED, "http", "accepts connections and does not answer")
    age = view.age_of_process_s
    is_fresh = view.restarts() > 0 and (age is None or age < 2 * LIMITS.startup_s)
    if is_fresh or view.ended is not None or any(_died(item.exit_code, item.signal) for item in view.processes):
        add(
            Symptom.CRASHED,
            "process",
            f"ended without being asked, {view.restarts()} restarts",
            view.restarts(),
        )
    health = view.get("/health", "/health_generate", "/readiness")
    is_well = health is None or health.status == 200 or _says_ready(health)
    if health is not None and not is_well and view.is_alive is not False:
        add(Symptom.UNHEALTHY, health.path, f"{health.path} says {health.status or health.error}")
    found.extend(_failures(view))
    damage = view.events(Event.CORRUPTION, Event.LATE_READ)
    if damage and view.is_alive is not False:
        add(Symptom.DAMAGE, "kv", damage[-1].text[:100], len(damage), damage[-1].place)
    if view.events(Event.ROUTER_NO_WORKER, Event.ROUTER_UPSTREAM):
        add(Symptom.REFUSED, "router", "turns requests away or cannot reach a worker")
    if left := departures(view):
        add(Symptom.CLIENTS_LEFT, "http", f"{len(left)} clients left before the answer")
    return found


def _says_ready(health: Get) -> bool:
    """Return whether a Dynamo worker serves though it says 503 `notready`: each of its endpoints is ready (1.6.1)."""
    body = json(health.body)
    endpoints = body.get("endpoints") if isinstance(body, dict) else None
    return isinstance(endpoints, dict) and bool(endpoints) and all(state == "ready" for state in endpoints.values())


def _died(exit_code: int | None, signal: int | None) -> bool:
    return bool(exit_code) or signal is not None


def _failures(view: InstanceView) -> list[Observed]:
    cut = cut_short(view)
    if cut is not None:
        return [Observed(_kind_of(cut.count, cut.ended), view.name, "requests", cut.text, cut.count)]
    failed = [
        rise.value
        for counter in (Counter.TRANSFERS_FAILED, Counter.BOOTSTRAPS_FAILED, Counter.REQUESTS_FAILED)
        if (rise := view.rise(counter)) is not None
    ]
    done = view.rise(Counter.REQUESTS_DONE)
    bad = max(failed, default=0.0)
    if done is None or not failed:
        return _logged_failures(view)
    if bad <= 0:
        return _logged_failures(view, fresh_s=LIMITS.onset_s)
    total = bad + done.value
    kind = _kind_of(bad, total)
    text = f"{view.name}: {bad:g} of {total:g} completions failed between the samples"
    return [Observed(kind, view.name, "requests", text, bad)]


def _kind_of(bad: float, total: float) -> Symptom:
    is_most = total >= LIMITS.failing_completions and bad / total >= LIMITS.failing_share
    return Symptom.FAILING if is_most else Symptom.FAILURES


_FAILURE_LINES = (Event.ROOM_FAILED, Event.TRANSFER_FAILED, Event.WRONG_PEER, Event.MISMATCH)


def _logged_failures(view: InstanceView, fresh_s: float | None = None) -> list[Observed]:
    """Judge by the log where no counter tells. With counters, fresh lines still tell: not every failure is counted."""
    lines = [item for item in view.events(*_FAILURE_LINES) if view.still_tells(item)]
    age = view.age_s(lines[-1].at) if lines else None
    if fresh_s is not None and (age is None or age > fresh_s):
        return []
    answers = [item for item in view.events(Event.ACCESS) if item.group("method") == "POST"]
    errors = [item for item in answers if item.group("status").startswith("5") and view.still_tells(item)]
    count = max(len(lines), len(errors))
    if count == 0:
        return []
    newest = answers[-2 * LIMITS.failing_completions :]
    bad = sum(1 for item in newest if item.group("status").startswith("5"))
    is_most = bad >= LIMITS.failing_completions and bad / len(newest) >= LIMITS.failing_share
    kind = Symptom.FAILING if is_most else Symptom.FAILURES
    text = f"{view.name}: {count} failures in its log"
    return [Observed(kind, view.name, "requests", text, count, (lines or errors)[0].place)]


def probe_symptoms(evidence: Evidence) -> list[Observed]:
    """Return what the probes showed; a passed one shows nothing wrong."""
    found: list[Observed] = []
    for probe in evidence.probes:
        unit = probe.via or "probe"
        if probe.output == "garbled" and probe.status == 200:
            found.append(Observed(Symptom.WRONG_OUTPUT, "", unit, "the probe's answer was wrong, with status 200"))
        elif probe.timed_out:
            seconds = (probe.took_ms or probe.timeout_ms or 0) / 1000
            text = f"the probe through {unit} got no answer in {seconds:.0f} s"
            found.append(Observed(Symptom.PROBE_TIMEOUT, "", unit, text, seconds))
        elif probe.status is not None and probe.status != 200:
            found.append(Observed(Symptom.PROBE_FAILED, "", unit, f"the probe through {unit} got {probe.status}"))
        elif probe.error or probe.status is None:
            words = probe.error or "it ended without an answer"
            found.append(Observed(Symptom.PROBE_FAILED, "", unit, f"the probe through {unit}: {words}"))
    return found
