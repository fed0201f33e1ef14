"""PD0301-PD0303: a control or transfer thread is dead, and everything else looks well."""

from __future__ import annotations

from pdctl.diagnose.analyzer import FAILURES, STALLS, Analyzer, Ask, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import (
    abort_burst,
    alive,
    fix_marker,
    full_dumps,
    gpus_do_not_spin,
    level,
    stalled,
    threads_running,
)
from pdctl.diagnose.symptoms import Symptom, progress
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Event, Gauge
from pdctl.dialects.versions import VersionRange
from pdctl.evidence.records import Place

# Function names of the threads: disaggregation/{nixl,mooncake,common,mori}/conn.py, 0.4.7 to 0.5.23.
BOOTSTRAP = ("bootstrap_thread", "bootstrap_thread_guarded", "bootstrap_worker")
TRANSFER = ("transfer_worker", "Transfer")
STATUS = ("decode_thread", "decode_listener_thread", "decode_staging_thread", "decode_worker")
_HAS_THREADS = ("sglang", "dynamo", "llm-d", "")
_EXPLAINS = (*STALLS, *FAILURES, Symptom.STUCK_SUBSET)


def _has_such_threads(case: Case, view: InstanceView) -> Answer:
    if view.raw.dialect not in (*_HAS_THREADS, "pdctl"):
        return no(f"{view.raw.dialect} has no such thread", Kind.TOPOLOGY)
    return yes("engines of this family have such a thread", Kind.TOPOLOGY)


def _absent(functions: tuple[str, ...]) -> Ask:
    """Ask whether schedulers that show their other threads lack this one."""

    def ask(case: Case, view: InstanceView) -> Answer:
        dumps = full_dumps(view.raw.stacks)
        if not dumps or view.raw.dialect not in _HAS_THREADS:
            return unknown(f"no full thread list of {view.name}")
        lacking = [process for process in dumps if threads_running(process, *functions) == 0]
        if (
            functions is STATUS
            and len(lacking) == len(dumps)
            and not (view.transfer or "").startswith(("mooncake", "mori"))
        ):
            # NIXL's decode has had a thread of its own only since 0.5.20.
            return unknown(f"this backend of {view.name} may have no {functions[0]}")
        text = f"{len(lacking)} of {len(dumps)} schedulers of {view.name} have no {functions[0]}"
        if lacking:
            names = ", ".join(
                sorted({thread.name for thread in lacking[0].threads if "(" in thread.name})[:3]
            )
            return yes(
                f"{text}; they show {names or f'{len(lacking[0].threads)} others'}",
                Kind.STACKS,
                lacking[0].place,
                len(lacking),
            )
        return no(
            f"all {len(dumps)} schedulers of {view.name} have a {functions[0]}",
            Kind.STACKS,
            dumps[0].place,
            0,
        )

    return ask


def _not_seen_alive(functions: tuple[str, ...]) -> Ask:
    """Ask that no full dump shows the thread on every scheduler; without a dump that holds."""

    def ask(case: Case, view: InstanceView) -> Answer:
        absent = _absent(functions)(case, view)
        return (
            absent
            if absent.is_false
            else yes(f"no dump of {view.name} shows a {functions[0]} everywhere", Kind.STACKS)
        )

    return ask


def _printed_death(functions: tuple[str, ...], *gauges: Gauge) -> Ask:
    """Ask whether a traceback ended the thread, and nothing succeeded since."""

    def ask(case: Case, view: InstanceView) -> Answer:
        found = [
            item
            for item in view.events(Event.THREAD_DIED)
            if item.group("thread").split(" ")[0] in functions
            or (functions is BOOTSTRAP and "MsgGuard" in item.text)
        ]
        if not found:
            return unknown(f"{view.name} prints no such end")
        if any(progress(view, gauge) for gauge in gauges) and not case.has(
            Symptom.STALLED, Symptom.STUCK_SUBSET, Symptom.FAILING, Symptom.FAILURES
        ):
            return no(
                f"{view.name} printed the end of a thread, but its requests pass since",
                Kind.LOG,
                found[-1].place,
            )
        return yes(f"{view.name}: {found[-1].text[:120]}", Kind.LOG, found[-1].place, len(found))

    return ask


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
        return no(text, Kind.METRICS, waiting.place, waiting.value)
    return unknown("the queues of the two sides are not known")


def _affected_version(case: Case, view: InstanceView) -> Answer:
    if fix_marker(view, "nixl_abort_handler"):
        return no(
            f"the running code of {view.name} handles ABORT", Kind.SOURCE, Place(f"{view.name}/source.toml")
        )
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
        return yes(
            f"{view.name} runs {view.version}: one ABORT kills this thread (sglang #30301)", Kind.SOURCE
        )
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


BOOTSTRAP_DEAD = Analyzer(
    code="PD0301",
    roles=("prefill",),
    inputs=(
        Kind.STACKS,
        Kind.LOG,
        Kind.GPU,
        Kind.METRICS,
        Kind.SOURCE,
        Kind.PROBE,
        Kind.HTTP,
        Kind.PROCESS,
        Kind.TOPOLOGY,
    ),
    explains=_EXPLAINS,
    checks=(
        requires("the family has such a thread", _has_such_threads),
        requires("prefill lives", alive),
        requires("no GPU spins without a step", gpus_do_not_spin),
        requires("no dump shows the thread everywhere", _not_seen_alive(BOOTSTRAP)),
        proves("a scheduler lacks the thread", _absent(BOOTSTRAP)),
        proves("a traceback ended it", _printed_death(BOOTSTRAP, Gauge.INFLIGHT)),
        suggests("decode's metadata is not taken", _metadata_not_taken),
        suggests("a burst of aborts came before", abort_burst),
        suggests("the version dies of an ABORT", _affected_version),
        suggests("a probe hangs on an idle prefill", _silent_probe),
    ),
)


def _worker_missing(case: Case, view: InstanceView) -> Answer:
    """Fewer transfer workers on one rank than on its siblings, or none."""
    dumps = full_dumps(view.raw.stacks)
    counts = [threads_running(process, *TRANSFER) for process in dumps]
    if not counts or max(counts) == 0:
        return unknown(f"no transfer workers in the dumps of {view.name}")
    if min(counts) < max(counts):
        index = counts.index(min(counts))
        return yes(
            f"a rank of {view.name} has {min(counts)} transfer workers, others {max(counts)}",
            Kind.STACKS,
            dumps[index].place,
            min(counts),
        )
    return no(
        f"every rank of {view.name} has {max(counts)} transfer workers",
        Kind.STACKS,
        dumps[0].place,
        max(counts),
    )


def _one_decode_only(case: Case, view: InstanceView) -> Answer:
    """Rooms of one decode stand still while another's move: they are sharded by decode."""
    states = {peer.name: progress(peer, Gauge.TRANSFER) for peer in case.peers(view)}
    still = [name for name, moved in states.items() if moved is False]
    moving = [name for name, moved in states.items() if moved]
    if still and moving:
        return yes(f"transfers to {still[0]} stand still, those to {moving[0]} move", Kind.METRICS)
    return unknown("the decodes do not differ")


TRANSFER_DEAD = Analyzer(
    code="PD0302",
    roles=("prefill",),
    inputs=(
        Kind.STACKS,
        Kind.LOG,
        Kind.GPU,
        Kind.METRICS,
        Kind.HTTP,
        Kind.PROCESS,
        Kind.TOPOLOGY,
        Kind.PROBE,
    ),
    explains=_EXPLAINS,
    checks=(
        requires("the family has such a thread", _has_such_threads),
        requires("prefill lives", alive),
        requires("no GPU spins without a step", gpus_do_not_spin),
        proves("a traceback ended it", _printed_death(TRANSFER, Gauge.INFLIGHT)),
        proves("a rank has fewer workers than its siblings", _worker_missing),
        suggests("only one decode is affected", _one_decode_only),
        suggests("computed rooms stand still", lambda case, view: stalled(case, view, Gauge.INFLIGHT)),
    ),
)


def _prefill_finishes(case: Case, view: InstanceView) -> Answer:
    """Prefill counts finished transfers while decode sees none of them."""
    own = view.rise(Counter.TRANSFERS_DONE) or view.rise(Counter.REQUESTS_DONE)
    for peer in case.peers(view):
        done = peer.rise(Counter.TRANSFERS_DONE) or peer.rise(Counter.REQUESTS_DONE)
        if done is None or own is None:
            continue
        text = f"{peer.name} finished {done.value:g} transfers, {view.name} saw {own.value:g}"
        if done.value > 0 and own.value == 0:
            return yes(text, Kind.METRICS, done.place, done.value)
        return no(text, Kind.METRICS, done.place, done.value)
    return unknown("transfers of the two sides are not known")


STATUS_DEAD = Analyzer(
    code="PD0303",
    roles=("decode",),
    inputs=(
        Kind.STACKS,
        Kind.LOG,
        Kind.GPU,
        Kind.METRICS,
        Kind.HTTP,
        Kind.PROCESS,
        Kind.TOPOLOGY,
        Kind.PROBE,
    ),
    explains=_EXPLAINS,
    checks=(
        requires("the family has such a thread", _has_such_threads),
        requires("decode lives", alive),
        requires("no GPU spins without a step", gpus_do_not_spin),
        requires("no dump shows the thread everywhere", _not_seen_alive(STATUS)),
        proves("a traceback ended it", _printed_death(STATUS, Gauge.TRANSFER)),
        proves("a scheduler lacks the thread", _absent(STATUS)),
        suggests("prefill finishes transfers that decode never sees", _prefill_finishes),
        suggests("transfers stand still", lambda case, view: stalled(case, view, Gauge.TRANSFER)),
    ),
)
ANALYZERS = (BOOTSTRAP_DEAD, TRANSFER_DEAD, STATUS_DEAD)
