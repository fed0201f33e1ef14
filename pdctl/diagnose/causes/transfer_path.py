"""PD0306-PD0308, PD0310, PD0311: transfers hang, fail or are refused while both sides live."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnose.analyzer import ENGINES, FAILURES, STALLS, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.stuck_handle import waiting_thread
from pdctl.diagnose.events import Occurrence
from pdctl.diagnose.hidden import queue_floor
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import (
    aborted_rooms,
    age_skew,
    alive,
    burst,
    grew,
    kv_usage,
    level,
    peers_alive,
    quantised,
    room_failures,
)
from pdctl.diagnose.symptoms import Symptom, progress
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Event, Gauge

_TRANSPORT = (Event.TRANSPORT_ERROR, Event.TRANSPORT_TIMEOUT)
_CONFIGURED = (Event.MISMATCH, Event.WRONG_PEER, Event.REGISTRY_UNREACHABLE, Event.CORRUPTION)
_EXPLAINS = (*STALLS, *FAILURES, Symptom.STUCK_SUBSET)


# PD0306


def _floor(case: Case, view: InstanceView) -> Answer:
    floor = queue_floor(view, Gauge.TRANSFER)
    usage = kv_usage(view)
    if floor is None:
        return unknown(f"the transfer queue of {view.name} keeps no floor")
    if usage is not None and usage[0] >= LIMITS.kv_full:
        return no(f"KV of {view.name} is full ({usage[0]:.2f}): it waits for capacity", usage[1])
    if room_failures(view) or view.events(Event.TRANSFER_FAILED):
        return unknown("rooms of this queue fail, so they do not stay")
    return yes(
        f"{floor[0]:g} transfers of {view.name} stayed for {floor[1]:.0f} min while others passed",
        Kind.LOG,
        value=floor[0],
    )


def _fetch_flat(case: Case, view: InstanceView) -> Answer:
    reading, before = view.gauge(Gauge.TRANSFER), view.gauge_before(Gauge.TRANSFER)
    done = view.rise(Counter.TRANSFERS_DONE)
    if reading is None or before is None or done is None:
        return unknown("no two samples of transfers")
    text = f"{view.name}: {reading.value:g} transfers under way, {done.value:g} ended between the samples"
    if reading.value > 0 and before.value > 0 and done.value == 0:
        return yes(text, Kind.METRICS, reading.place, reading.value)
    return no(text, Kind.METRICS, reading.place, reading.value)


def _no_failures(case: Case, view: InstanceView) -> Answer:
    for side in (view, *case.peers(view)):
        if side.events(Event.TRANSFER_FAILED, *_TRANSPORT) or room_failures(side):
            return no(f"{side.name} reports failures", Kind.LOG)
    return yes("neither side reports a failure", Kind.LOG) if view.has_log else unknown("no log")


def _waits_without_abort(case: Case, view: InstanceView) -> Answer:
    """A thread waits for the same transfer in both dumps, and nobody aborted anything."""
    waits = waiting_thread(view)
    if not waits.is_true or not view.raw.stacks_prev:
        return unknown("no thread is seen twice waiting for a transfer")
    aborted = any(
        aborted_rooms(side) or side.events(Event.TRANSFER_FAILED) for side in (view, *case.peers(view))
    )
    return unknown("transfers were aborted or failed") if aborted else waits


STUCK = Analyzer(
    code="PD0306",
    roles=("decode", "prefill"),
    inputs=(Kind.METRICS, Kind.LOG, Kind.HTTP, Kind.PROCESS, Kind.STACKS),
    explains=_EXPLAINS,
    checks=(
        requires("it lives", alive),
        requires("its peers live", peers_alive),
        proves("the transfer queue keeps a floor", _floor),
        proves("a thread waits for a transfer nobody aborted", _waits_without_abort),
        suggests("transfers under way, none ends", _fetch_flat),
        suggests("a thread waits for a transfer", lambda case, view: waiting_thread(view)),
    ),
)


# PD0307


def _fails_since(case: Case, view: InstanceView) -> Answer:
    sides = (view, *case.peers(view))
    for side in sides:
        found = side.events(Event.STALE_METADATA, Event.TRANSFER_FAILED, *_TRANSPORT) or room_failures(side)
        start = max((one.started_at for one in sides if one.started_at), default=None)
        late = [item for item in found if start is None or item.at is None or item.at >= start]
        if late:
            return yes(
                f"{side.name} since the restart: {late[-1].text[:110]}", Kind.LOG, late[-1].place, len(late)
            )
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
    return no("requests pass", Kind.METRICS)


RESTART = Analyzer(
    code="PD0307",
    roles=("prefill", "decode"),
    inputs=(Kind.PROCESS, Kind.LOG, Kind.METRICS, Kind.HTTP, Kind.PROBE),
    explains=_EXPLAINS,
    checks=(
        requires("one side was restarted alone", age_skew),
        requires("both sides live", lambda case, view: either_dead(case, view)),
        requires("requests hang or fail", _not_serving),
        suggests("one side is much younger", age_skew),
        suggests("failures since the restart", _fails_since),
        suggests("failures are asymmetric", _asymmetric),
        suggests("failures are counted", _total_asymmetry),
        suggests("a request through the younger side hangs", _probe_hangs),
    ),
)


def either_dead(case: Case, view: InstanceView) -> Answer:
    """Ask that neither side is gone or stopped."""
    own = alive(case, view)
    return own if not own.is_true else peers_alive(case, view)


# PD0308


def _ends_by_clock(case: Case, view: InstanceView) -> Answer:
    """This side's rooms end by their own timeout: nobody told it anything."""
    quantum = quantised(room_failures(view, "timed out"))
    if quantum is None:
        return unknown(f"rooms of {view.name} do not end by one timeout")
    return yes(
        f"{quantum[1]} rooms of {view.name} ended exactly {quantum[0]:.0f} s after they began to wait",
        Kind.LOG,
        room_failures(view, "timed out")[-1].place,
        quantum[0],
        "s",
    )


def _other_failed(case: Case, view: InstanceView) -> Answer:
    """The other side failed or aborted rooms that this side went on waiting for."""
    for peer in case.peers(view):
        found = burst(aborted_rooms(peer)) or burst(peer.events(Event.TRANSFER_FAILED))
        if found:
            return yes(
                f"{peer.name}: {len(found)} rooms failed within a minute ({found[0].text[:70]})",
                Kind.LOG,
                found[0].place,
                len(found),
            )
    return unknown("no burst of failures on the other side")


def _told_one_side(case: Case, view: InstanceView) -> Answer:
    """The same room: a definite reason there, a timeout here, a minute or more later."""
    waited = {item.group("room"): item for item in room_failures(view, "timed out")}
    for peer in case.peers(view):
        for item in room_failures(peer):
            late = waited.get(item.group("room"))
            if late is None or "timed out" in item.group("reason") or late.at is None or item.at is None:
                continue
            gap = (late.at - item.at).total_seconds()
            if gap >= LIMITS.silence_s:
                return yes(
                    f"room {item.group('room')[-6:]} failed on {peer.name}, {view.name} waited {gap:.0f} s more",
                    Kind.LOG,
                    late.place,
                    gap,
                    "s",
                )
    return unknown("no room with different ends on the two sides")


def _waits_alone(case: Case, view: InstanceView) -> Answer:
    """Many rooms wait here, and the other side holds none."""
    waiting = level(view, Gauge.TRANSFER)
    peers = case.peers(view)
    held = [
        (level(peer, Gauge.INFLIGHT) or 0.0) + (level(peer, Gauge.BOOTSTRAP) or 0.0)
        for peer in peers
        if level(peer, Gauge.INFLIGHT) is not None
    ]
    if waiting is None or not held:
        return unknown("the queues of the two sides are not known")
    text = f"{waiting:g} rooms wait on {view.name}, prefill holds {sum(held):g}"
    reading = view.gauge(Gauge.TRANSFER)
    if waiting >= LIMITS.asymmetry_floor and waiting >= LIMITS.asymmetry_ratio * max(1.0, max(held)):
        return yes(text, Kind.METRICS if reading else Kind.LOG, reading.place if reading else None, waiting)
    return no(text, Kind.METRICS if reading else Kind.LOG, value=waiting)


def _waits_on_failed(case: Case, view: InstanceView) -> Answer:
    """Its executor waits for a transfer; the other side reported that transfer failed."""
    waits = waiting_thread(view)
    if not waits.is_true:
        return unknown("no thread is known to wait for a transfer")
    for peer in case.peers(view):
        found = peer.events(Event.TRANSFER_FAILED) or room_failures(peer)
        if found and not view.events(Event.TRANSFER_FAILED):
            return yes(
                f"{waits.text}; {peer.name}: {found[0].text[:80]}", Kind.STACKS, waits.place, len(found)
            )
    return unknown("the other side reports no failure")


LOST = Analyzer(
    code="PD0308",
    roles=("decode", "prefill"),
    inputs=(Kind.LOG, Kind.METRICS, Kind.STACKS, Kind.HTTP, Kind.PROCESS),
    explains=_EXPLAINS,
    checks=(
        requires("it lives", alive),
        proves("one room, two ends", _told_one_side),
        proves("it waits for a transfer that the other side failed", _waits_on_failed),
        suggests("its rooms end by their own clock", _ends_by_clock),
        suggests("the other side failed in a burst", _other_failed),
        suggests("it waits alone", _waits_alone),
    ),
)


# PD0310


def _no_other_reason(case: Case, view: InstanceView) -> Answer:
    for side in (view, *case.peers(view)):
        found = side.events(*_CONFIGURED, Event.THREAD_DIED, Event.FATAL_SIGNAL)
        if found:
            return no(f"{side.name} names another reason: {found[-1].text[:80]}", Kind.LOG, found[-1].place)
    return yes("no configuration error, thread death or crash is named", Kind.LOG)


def _transport(view: InstanceView) -> tuple[Occurrence, ...]:
    return view.events(*_TRANSPORT)


def _errors_among_the_living(case: Case, view: InstanceView) -> Answer:
    """Transport errors of this incarnation, both sides alive and of one age, other transfers pass."""
    errors = [item for item in _transport(view) if (view.age_s(item.at) or 0.0) <= LIMITS.recent_errors_s]
    if len(errors) < 2:
        return unknown(f"{view.name} prints no recent series of transport errors")
    if _is_rare(view, len(errors)):
        return unknown(f"{view.name}: {len(errors)} transport errors among very many transfers that pass")
    skew = age_skew(case, view)
    if skew.is_true:
        return unknown(skew.text)
    living = either_dead(case, view)
    if not living.is_true:
        return unknown(living.text)
    passed = any(
        progress(side, Gauge.TRANSFER) or progress(side, Gauge.INFLIGHT) for side in (view, *case.peers(view))
    )
    if not passed and not _works_after(view, errors[0]):
        return unknown("no other transfer is known to pass")
    return yes(
        f"{view.name}: {len(errors)} transport errors between living peers ({errors[0].text[:80]})",
        Kind.LOG,
        errors[0].place,
        len(errors),
    )


def _is_rare(view: InstanceView, errors: int) -> bool:
    """Return whether so many requests pass that a few errors do not matter."""
    failed, done = view.rise(Counter.TRANSFERS_FAILED), view.rise(Counter.REQUESTS_DONE)
    if failed is not None and done is not None and failed.value + done.value > 0:
        return failed.value / (failed.value + done.value) < LIMITS.rare_share
    good = sum(
        1
        for item in view.events(Event.ACCESS)
        if item.group("status") == "200" and item.group("method") == "POST"
    )
    return good > 0 and errors / (errors + good) < LIMITS.rare_share


def _works_after(view: InstanceView, first: Occurrence) -> bool:
    return any(item.is_step and item.at and first.at and item.at > first.at for item in view.works)


def _says_transport(case: Case, view: InstanceView) -> Answer:
    sides = (view, *case.peers(view))
    errors = [item for side in sides for item in _transport(side)]
    if errors:
        return yes(f"transport error: {errors[-1].text[:110]}", Kind.LOG, errors[-1].place, len(errors))
    return unknown("no transport error is printed")


def _counts_failures(case: Case, view: InstanceView) -> Answer:
    return grew(view, Counter.TRANSFERS_FAILED, "failed transfers")


NETWORK = Analyzer(
    code="PD0310",
    roles=ENGINES,
    inputs=(Kind.LOG, Kind.METRICS, Kind.PROCESS, Kind.HTTP),
    explains=_EXPLAINS,
    checks=(
        requires("both sides live", either_dead),
        requires("nothing else is named", _no_other_reason),
        proves("transport errors between living peers of one age", _errors_among_the_living),
        suggests("transport errors are printed", _says_transport),
        suggests("failed transfers grow", _counts_failures),
    ),
)


# PD0311


def _mooncake(case: Case, view: InstanceView) -> Answer:
    if view.transfer is None:
        return unknown("the transfer backend is not known")
    if view.transfer.startswith("mooncake"):
        return yes("Mooncake keeps a list of failed sessions", Kind.TOPOLOGY)
    return no(f"{view.transfer} keeps no list of failed sessions", Kind.TOPOLOGY)


def _open_sessions(view: InstanceView) -> Iterable[Occurrence]:
    """Yield session failures that no recovery followed."""
    for item in view.events(Event.SESSION_FAILED):
        later = (
            one
            for one in view.events(Event.SESSION_RECOVERED)
            if one.group("session") == item.group("session")
        )
        if not any(one.at and item.at and one.at >= item.at for one in later):
            yield item


def _refused_since(case: Case, view: InstanceView) -> Answer:
    failed = next(iter(_open_sessions(view)), None)
    named = room_failures(view, "is not alive") or tuple(
        item for peer in case.peers(view) for item in room_failures(peer, "is not alive")
    )
    if len(named) >= LIMITS.burst_events:
        return yes(
            f"{len(named)} rooms refused: {named[-1].group('reason')[:90]}",
            Kind.LOG,
            named[-1].place,
            len(named),
        )
    if failed is None:
        return unknown("no session failure without recovery")
    for peer in case.peers(view):
        after = [
            item
            for item in room_failures(peer, "might be dead", "not alive")
            if item.at and failed.at and item.at > failed.at
        ]
        tried = [item for item in _transport(view) if item.at and failed.at and item.at > failed.at]
        if len(after) >= LIMITS.burst_events and not tried:
            return yes(
                f"{failed.text[:60]} and no attempt since; {len(after)} rooms of {peer.name} failed at once",
                Kind.LOG,
                failed.place,
                len(after),
            )
    return unknown("nothing failed after the session did")


BLACKLIST = Analyzer(
    code="PD0311",
    roles=("prefill",),
    inputs=(Kind.LOG, Kind.TOPOLOGY, Kind.SOURCE, Kind.HTTP, Kind.PROCESS),
    explains=_EXPLAINS,
    checks=(
        requires("the backend keeps such a list", _mooncake),
        requires("both sides live", either_dead),
        proves("refused since one failure", _refused_since),
    ),
)
ANALYZERS = (STUCK, RESTART, LOST, NETWORK, BLACKLIST)
