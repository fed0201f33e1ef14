"""PD0402: requests starve for decode pages."""

from __future__ import annotations

from pdctl.diagnose.analyzer import FAILURES, STALLS, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.bursts import quantised, room_failures
from pdctl.diagnose.case import Case
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.pages import waiting_for_free_pages
from pdctl.diagnose.predicates import alive, kv_usage, level, stalled, unless_frozen
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.pdctl_signals import QUEUE_AGE
from pdctl.dialects.signals import Gauge
from pdctl.evidence.records import Place


def _room_for_more(case: Case, view: InstanceView) -> Answer:
    waiting = level(view, Gauge.PREALLOC)
    usage = kv_usage(view)
    if waiting is None or usage is None:
        return unknown("queue and KV use are not known")
    text = f"{waiting:g} wait for pages on {view.name} while KV is {usage[0]:.0%} used"
    answer = (yes if waiting > 0 and usage[0] < LIMITS.kv_full else no)(text, usage[1], value=waiting)
    return unless_frozen(answer, view, Gauge.PREALLOC, Gauge.KV_USAGE)


def _waits_beside_free_pages(case: Case, view: InstanceView) -> Answer:
    """Ask whether requests wait for pages though most are free and nothing runs that would free others."""
    found = waiting_for_free_pages(view)
    if found is None:
        return unknown(f"no request is known to wait on {view.name} beside free pages")
    age, free, total = found
    place = Place(f"{view.name}/metrics.txt", pointer=f"{QUEUE_AGE} pages")
    text = f"{view.name}: a request waits {age:.0f} s for pages, {free:g} of {total:g} are free and nothing runs"
    return yes(text, Kind.METRICS, place, age, "s")


def _both_clocks(case: Case, view: InstanceView) -> Answer:
    """Prefill gives rooms up by its bootstrap clock, decode the same rooms by its own: they waited for admission."""
    for peer in case.peers(view):
        early = quantised(room_failures(peer, "Bootstrapping"))
        shared = {item.group("room") for item in room_failures(peer, "Bootstrapping")} & {
            item.group("room") for item in room_failures(view, "timed out")
        }
        late = quantised(room_failures(view, "WaitingForInput"))
        if early and (shared or late):
            text = f"{early[1]} rooms ended on {peer.name} after {early[0]:.0f} s of bootstrap"
            if late:
                text += f", on {view.name} after {late[0]:.0f} s"
            return yes(text, Kind.LOG, room_failures(peer, "Bootstrapping")[-1].place, early[1])
    return unknown("no rooms end by both clocks")


def _small_admission(case: Case, view: InstanceView) -> Answer:
    source = view.raw.source
    for flag in ("--max-num-seqs", "--max-running-requests"):
        value = source.flag(flag) if source else None
        running = level(view, Gauge.RUNNING)
        if value and value.isdecimal() and int(value) <= 16:
            return yes(
                f"{view.name} admits {value} at a time ({running or 0:g} run)",
                Kind.SOURCE,
                Place(f"{view.name}/source.toml"),
                int(value),
            )
    return unknown("no small admission limit is known")


ANALYZER = Analyzer(
    code="PD0402",
    roles=("decode",),
    inputs=(Kind.METRICS, Kind.LOG, Kind.SOURCE, Kind.HTTP, Kind.PROCESS, Kind.PROBE),
    explains=(*STALLS, *FAILURES, Symptom.STUCK_SUBSET),
    checks=(
        requires("decode lives", alive),
        proves("rooms end by both sides' clocks", _both_clocks),
        proves("requests wait beside free pages", _waits_beside_free_pages),
        suggests("requests wait for pages that are there", _room_for_more),
        suggests("the queue for pages stands still", lambda case, view: stalled(case, view, Gauge.PREALLOC)),
        suggests("admission is small", _small_admission),
    ),
)
