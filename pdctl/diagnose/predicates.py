"""Questions that several causes ask."""

from __future__ import annotations

from collections.abc import Callable

from pdctl.diagnose.analyzer import Ask
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.events import Occurrence
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.symptoms import Symptom, progress
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Event, Gauge


def logged(view: InstanceView, *events: Event, what: str) -> Answer:
    """Ask whether the running incarnation printed such lines. Absence counts only with the whole log at hand."""
    found = view.events(*events)
    if found:
        last = found[-1]
        return yes(f"{view.name}: {what} ({len(found)}x, last: {last.text[:110]})", Kind.LOG, last.place, len(found))
    if not view.has_log or view.raw.log_truncated:
        return unknown(f"no complete log of {view.name}")
    return no(f"{view.name}: no line of {what}", Kind.LOG, value=0)


def says(*events: Event, otherwise: str) -> Ask:
    """Ask for the newest such line of the running incarnation; that there is none tells nothing."""
    return _newest(lambda case, view: (view,), lambda view: view.events(*events), otherwise)


def said_last(*events: Event, otherwise: str) -> Ask:
    """Ask the same of the running incarnation and of the end of the one before: why it was restarted."""
    return _newest(lambda case, view: (view,), lambda view: view.end_events(*events), otherwise)


def a_peer_says(*events: Event, otherwise: str) -> Ask:
    """Ask for the newest such line of any peer."""
    return _newest(lambda case, view: case.peers(view), lambda view: view.events(*events), otherwise)


def _newest(
    sides: Callable[[Case, InstanceView], tuple[InstanceView, ...]],
    lines: Callable[[InstanceView], tuple[Occurrence, ...]],
    otherwise: str,
) -> Ask:
    def ask(case: Case, view: InstanceView) -> Answer:
        for side in sides(case, view):
            if found := lines(side):
                last = found[-1]
                return yes(f"{side.name}: {last.text[:110]}", Kind.LOG, last.place, len(found))
        return unknown(otherwise)

    return ask


def nobody_gone(case: Case, view: InstanceView) -> Answer:
    """Ask that neither it nor a peer is known to be gone."""
    gone = [one.name for one in (view, *case.peers(view)) if one.is_alive is False]
    return no(f"{gone[0]} is gone", Kind.HTTP) if gone else yes("no side is known to be gone", Kind.HTTP)


def alive(case: Case, view: InstanceView) -> Answer:
    """Ask whether the instance is there."""
    if view.is_alive is None:
        return unknown(f"nothing tells whether {view.name} lives")
    kind = Kind.HTTP if view.raw.gets else Kind.PROCESS
    if view.is_alive:
        return yes(f"{view.name} is there", kind)
    return no(f"{view.name} is gone", kind)


def peers_alive(case: Case, view: InstanceView) -> Answer:
    """Ask whether every peer is there and runs."""
    peers = case.peers(view)
    gone = [peer for peer in peers if peer.is_alive is False or peer.is_stopped]
    if gone:
        return no(f"{gone[0].name} is gone or stopped", Kind.PROCESS)
    mute = next((peer for peer in (view, *peers) if peer.is_mute), None)
    if mute is not None:
        return unknown(f"{mute.name} accepts connections and answers nothing")
    if all(peer.is_alive for peer in peers):
        return yes(f"{view.name} and its peers are there", Kind.PROCESS)
    return unknown("nothing tells whether every peer lives")


def stalled(case: Case, view: InstanceView, *gauges: Gauge) -> Answer:
    """Ask whether one of these queues holds work that does not move."""
    for gauge in gauges:
        unit = case.unit(view, gauge)
        observed = next(
            (
                item
                for item in case.symptoms
                if item.instance == view.name
                and item.unit == gauge.value
                and item.symptom in (Symptom.STALLED, Symptom.SUSPECTED)
            ),
            None,
        )
        if unit is not None and observed is not None:
            return yes(observed.text, _kind_of(unit.place.file), unit.place, unit.outstanding, "requests")
    known = [view.gauge(gauge) for gauge in gauges]
    if any(known) and view.interval_s:
        text = f"{view.name}: nothing stands still in {', '.join(gauge.value for gauge in gauges)}"
        return unless_frozen(no(text, Kind.METRICS), view, *gauges)
    return unknown(f"no two samples of the queues of {view.name}")


def _kind_of(file: str) -> Kind:
    return Kind.LOG if "/log" in file else Kind.METRICS


def grew(view: InstanceView, counter: Counter, what: str) -> Answer:
    """Ask whether a counter grew between the samples."""
    rise = view.rise(counter)
    if rise is None:
        return unknown(f"no two samples of {counter.value} of {view.name}")
    if rise.value > 0:
        return yes(f"{view.name}: {what} +{rise.value:g}", Kind.METRICS, rise.place, rise.value)
    return no(f"{view.name}: {what} did not grow", Kind.METRICS, rise.place, 0)


def moves(case: Case, view: InstanceView, gauge: Gauge) -> Answer:
    """Ask whether requests leave a queue well."""
    answer = progress(view, gauge)
    if answer is None:
        return unknown(f"nothing tells whether {gauge.value} of {view.name} moves")
    kind = Kind.METRICS if view.interval_s and view.raw.metrics else Kind.LOG
    return (yes if answer else no)(f"{view.name}: {gauge.value} {'moves' if answer else 'stands still'}", kind)


def gpus_do_not_spin(case: Case, view: InstanceView) -> Answer:
    """Ask that no GPU of a pair is busy without a step: while requests wait for a transfer, GPUs have nothing to do."""
    for side in (view, *case.peers(view)):
        loads = [gpu.util_percent for gpu in side.raw.gpus if gpu.util_percent is not None]
        steps = side.rise(Counter.STEPS)
        is_still = steps is not None and steps.value == 0
        if loads and min(loads) >= LIMITS.gpu_spin_percent and is_still:
            return unknown(f"GPUs of {side.name} spin at {min(loads):.0f} % without a step")
    return yes("no GPU is known to spin without a step", Kind.GPU)


def fix_marker(view: InstanceView, marker: str) -> bool | None:
    """Return whether the running code has a fix; None when nobody looked."""
    return view.raw.source.fixes.get(marker) if view.raw.source else None


def has_flag(view: InstanceView, flag: str) -> bool | None:
    """Return whether a flag was given; None when the flags are not known."""
    if view.raw.source is None or not view.raw.source.flags:
        return None
    return view.raw.source.flag(flag) is not None


def kv_usage(view: InstanceView) -> tuple[float, Kind] | None:
    """Return the used share of KV memory."""
    reading = view.gauge(Gauge.KV_USAGE)
    if reading is not None:
        return reading.value, Kind.METRICS
    work = next((item for item in reversed(view.works) if Gauge.KV_USAGE in item.levels), None)
    return (work.levels[Gauge.KV_USAGE], Kind.LOG) if work else None


def level(view: InstanceView, gauge: Gauge) -> float | None:
    """Return a level from the metrics, else from the last line of the log."""
    reading = view.gauge(gauge)
    if reading is not None:
        return reading.value
    return view.last_work.levels.get(gauge) if view.last_work else None


def outlasts_patience(case: Case, view: InstanceView, *gauges: Gauge) -> bool:
    """Return whether work stands in one of these queues for longer than one slow step may hold it up."""
    units = (case.unit(view, gauge) for gauge in gauges)
    return any(unit is not None and (unit.span_s or 0.0) >= LIMITS.patience_s for unit in units)


def unless_frozen(answer: Answer, view: InstanceView, *gauges: Gauge) -> Answer:
    """Return the answer to a question about these levels; a `no` that rests on one that is frozen is unknown."""
    readings = [view.gauge(gauge) for gauge in gauges]
    if answer.is_false and any(reading is not None and reading.is_frozen for reading in readings):
        return unknown(f"{answer.text}, by metrics that were not written since")
    return answer
