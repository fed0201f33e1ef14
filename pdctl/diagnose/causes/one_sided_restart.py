"""PD0307: one side was restarted alone, the other keeps talking to what was."""

from __future__ import annotations

from pdctl.diagnose.analyzer import FAILURES, STALLS, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, either, every, no, unknown, yes
from pdctl.diagnose.bursts import age_skew, room_failures
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.self_report import reported_dead
from pdctl.diagnose.causes.transfer_sides import EXPLAINS, TRANSPORT, either_dead
from pdctl.diagnose.causes.two_sided_rooms import has_forgotten, is_never_heard
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.pdctl_signals import CONTROL_THREAD
from pdctl.dialects.signals import Counter, Event

_dead = reported_dead(CONTROL_THREAD)


def _fails_since(case: Case, view: InstanceView) -> Answer:
    sides = (view, *case.peers(view))
    for side in sides:
        found = side.events(Event.STALE_METADATA, Event.TRANSFER_FAILED, *TRANSPORT) or room_failures(side)
        start = max((one.started_at for one in sides if one.started_at), default=None)
        late = [item for item in found if start is None or item.at is None or item.at >= start]
        if late:
            return yes(f"{side.name} since the restart: {late[-1].text[:110]}", Kind.LOG, late[-1].place, len(late))
    return unknown("no failure after the restart in the logs")


def _asymmetric(case: Case, view: InstanceView) -> Answer:
    """Failures of the two sides, as increases over the time both lived."""
    own = view.rise(Counter.TRANSFERS_FAILED)
    for peer in case.peers(view):
        other = peer.rise(Counter.TRANSFERS_FAILED)
        if own is None or other is None:
            continue
        high, low = max(own.value, other.value), min(own.value, other.value)
        text = f"failed transfers: {view.name} +{own.value:g}, {peer.name} +{other.value:g}"
        if high >= LIMITS.asymmetry_floor and high >= LIMITS.asymmetry_ratio * max(low, 1.0):
            return yes(text, Kind.METRICS, own.place, high)
        if high > 0:
            return unknown(text)
    return unknown("failed transfers of both sides are not known")


def _total_asymmetry(case: Case, view: InstanceView) -> Answer:
    """The restarted side began at zero: the older one's failures beyond it are not its own."""
    own = view.total(Counter.TRANSFERS_FAILED)
    young = age_skew(case, view)
    for peer in case.peers(view):
        other = peer.total(Counter.TRANSFERS_FAILED)
        if own is None or other is None or not young.is_true:
            continue
        if (own.value + other.value) > 0:
            return yes(
                f"failed transfers: {view.name} {own.value:g}, {peer.name} {other.value:g}",
                Kind.METRICS,
                own.place,
                own.value,
            )
    return unknown("no failed transfers are counted")


def _probe_hangs(case: Case, view: InstanceView) -> Answer:
    """A request through the restarted instance hangs."""
    young = view.age_of_process_s
    for probe in case.probes:
        if not probe.timed_out:
            continue
        if (
            probe.via == view.name
            and young is not None
            and all((peer.age_of_process_s or 0) > young for peer in case.peers(view))
        ):
            return yes(
                f"a request through {view.name}, the younger side, hangs",
                Kind.PROBE,
                value=probe.took_ms,
                unit="ms",
            )
    return unknown("no request through the younger side is known to hang")


def _not_serving(case: Case, view: InstanceView) -> Answer:
    if any(item.symptom in (*STALLS, *FAILURES) for item in case.symptoms):
        return yes("requests hang or fail since", Kind.METRICS)
    return no("requests pass", Kind.METRICS) if case.is_moving else unknown("no request is known to hang or to fail")


def _restarted_alone(case: Case, view: InstanceView) -> Answer:
    return either(age_skew(case, view), has_forgotten(case, view))


def _hears(case: Case, view: InstanceView) -> Answer:
    """A side whose control thread is dead hears nothing either, without any restart."""
    for side in (view, *case.peers(view)):
        dead = _dead(case, side)
        if dead.is_true:
            return no(dead.text, Kind.HTTP, dead.place)
    return yes("no control thread is known to be dead", Kind.HTTP)


def _unheard_since(case: Case, view: InstanceView) -> Answer:
    return every(has_forgotten(case, view), is_never_heard(case, view))


ANALYZER = Analyzer(
    code="PD0307",
    roles=("prefill", "decode"),
    inputs=(Kind.STACKS, Kind.PROCESS, Kind.LOG, Kind.METRICS, Kind.HTTP, Kind.PROBE),
    explains=EXPLAINS,
    checks=(
        requires("one side was restarted alone", _restarted_alone),
        requires("its control thread is not known to be dead", _hears),
        proves("it never hears of rooms that the other side answers", _unheard_since),
        requires("both sides live", lambda case, view: either_dead(case, view)),
        requires("requests hang or fail", _not_serving),
        suggests("one side is much younger", age_skew),
        suggests("failures since the restart", _fails_since),
        suggests("failures are asymmetric", _asymmetric),
        suggests("failures are counted", _total_asymmetry),
        suggests("a request through the younger side hangs", _probe_hangs),
    ),
)
