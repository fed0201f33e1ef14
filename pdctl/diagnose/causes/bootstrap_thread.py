"""PD0301: prefill's bootstrap thread is dead, and everything else looks well."""

from __future__ import annotations

from pdctl.diagnose.analyzer import proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.bursts import abort_burst
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.thread_signs import BOOTSTRAP, absent, dead_thread, not_seen_alive
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import fix_marker, level, unless_frozen
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Gauge
from pdctl.dialects.versions import VersionRange
from pdctl.evidence.records import Place


def _metadata_not_taken(case: Case, view: InstanceView) -> Answer:
    """Decode has sent its metadata for many rooms, prefill holds next to none of them."""
    inflight = (level(view, Gauge.INFLIGHT) or 0.0) + (level(view, Gauge.BOOTSTRAP) or 0.0)
    for peer in case.peers(view):
        waiting = peer.gauge(Gauge.TRANSFER)
        if waiting is None or view.gauge(Gauge.INFLIGHT) is None:
            continue
        still = case.symptom_of(peer, Symptom.STALLED, Symptom.SUSPECTED)
        text = f"{waiting.value:g} rooms wait on {peer.name}, {view.name} holds {inflight:g}"
        if (
            still
            and waiting.value >= LIMITS.asymmetry_floor
            and waiting.value >= LIMITS.asymmetry_ratio * max(inflight, 1.0)
        ):
            return yes(text, Kind.METRICS, waiting.place, waiting.value)
        return unless_frozen(no(text, Kind.METRICS, waiting.place, waiting.value), peer, Gauge.TRANSFER)
    return unknown("the queues of the two sides are not known")


def _affected_version(case: Case, view: InstanceView) -> Answer:
    if fix_marker(view, "nixl_abort_handler"):
        return no(f"the running code of {view.name} handles ABORT", Kind.SOURCE, Place(f"{view.name}/source.toml"))
    if view.transfer not in (None, "nixl"):
        return no(f"{view.name} transfers by {view.transfer}", Kind.SOURCE)
    if fix_marker(view, "nixl_abort_handler") is False:
        return yes(
            f"the running code of {view.name} does not understand ABORT",
            Kind.SOURCE,
            Place(f"{view.name}/source.toml"),
        )
    if view.version is None:
        return unknown(f"the version of {view.name} is not known")
    # sglang #30301: one ABORT kills the thread; handled from 0.5.16 (PR #30352).
    if VersionRange("0.5.13", "0.5.16").holds(view.version):
        return yes(f"{view.name} runs {view.version}: one ABORT kills this thread (sglang #30301)", Kind.SOURCE)
    return no(f"{view.name} runs {view.version}, which handles ABORT", Kind.SOURCE)


def _silent_probe(case: Case, view: InstanceView) -> Answer:
    probe = case.last_probe
    if probe is None:
        return unknown("no probe was sent")
    if not probe.timed_out:
        return no("the probe was answered", Kind.PROBE)
    queues = [view.gauge(gauge) for gauge in (Gauge.INFLIGHT, Gauge.BOOTSTRAP, Gauge.RUNNING)]
    known = [reading.value for reading in queues if reading]
    if known and max(known) <= 1:
        return yes(f"a probe hangs though {view.name} has nothing to do", Kind.PROBE, value=max(known))
    return unknown("the probe hangs among other requests")


ANALYZER = dead_thread(
    "PD0301",
    BOOTSTRAP,
    ("prefill",),
    requires("no dump shows the thread everywhere", not_seen_alive(BOOTSTRAP)),
    proves("a scheduler lacks the thread", absent(BOOTSTRAP)),
    suggests("decode's metadata is not taken", _metadata_not_taken),
    suggests("a burst of aborts came before", abort_burst),
    suggests("the version dies of an ABORT", _affected_version),
    suggests("a probe hangs on an idle prefill", _silent_probe),
)
