"""PD0403, PD0404: memory of ended requests is never freed."""

from __future__ import annotations

from pdctl.diagnose.analyzer import ENGINES, STALLS, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, unknown, yes
from pdctl.diagnose.bursts import abort_burst, burst, many_aborts
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.stuck_handle import waiting_thread
from pdctl.diagnose.hidden import host_memory, idle_tokens, usage_climbs
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.pages import ownerless
from pdctl.diagnose.predicates import alive, says
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event
from pdctl.evidence.records import Place

_ENGINE_SAYS = says(Event.POOL_LEAK, otherwise="the engine reports no leak")


def _idle_use(case: Case, view: InstanceView) -> Answer:
    used = idle_tokens(view)
    if used is None:
        return unknown("no KV in use without requests is known")
    return yes(
        f"{view.name} holds {used.value:g} KV tokens without a request",
        Kind.METRICS,
        used.place,
        used.value,
        "tokens",
    )


def _ownerless(case: Case, view: InstanceView) -> Answer:
    held = ownerless(view)
    if held is None:
        return unknown(f"no pages of {view.name} are known to be left of ended requests")
    text = f"{view.name}: {held.pages:g} pages stay {held.owner}, no request is left"
    return yes(text, Kind.METRICS, held.place, held.pages, "pages")


def _climbs(case: Case, view: InstanceView) -> Answer:
    climb = usage_climbs(view)
    if climb is None:
        return unknown("KV use does not climb against the load")
    return yes(
        f"KV of {view.name} rose from {climb[0]:.0%} to {climb[1]:.0%} "
        f"while running fell from {climb[2]:.0f} to {climb[3]:.0f}",
        Kind.LOG,
        value=climb[1],
    )


def _climbs_after_aborts(case: Case, view: InstanceView) -> Answer:
    climb, aborts = _climbs(case, view), many_aborts(case, view)
    if climb.is_true and aborts.is_true:
        return yes(f"{climb.text}; {aborts.text}", Kind.LOG, aborts.place, climb.value)
    return unknown(climb.text if not climb.is_true else aborts.text)


def _executor_waits(case: Case, view: InstanceView) -> Answer:
    """All executor loops sit in the check for ended transfers after failed ones: their blocks never come back."""
    waits = waiting_thread(view)
    failed = burst(view.events(Event.TRANSFER_FAILED)) or view.events(Event.TRANSFER_FAILED)
    if waits.is_true and len(failed) >= LIMITS.burst_events:
        return yes(f"{waits.text}, after {len(failed)} failed transfers", Kind.STACKS, waits.place, waits.value)
    return unknown("no executor waits for failed transfers")


def _held(case: Case, view: InstanceView) -> Answer:
    found = view.events(Event.HELD_BLOCKS)
    last = max((item.at for item in view.works if item.at), default=None)
    if len(found) >= 10 and len({item.text for item in found[-10:]}) <= 3:
        return yes(f"{view.name} repeats {len(found)}x: {found[-1].text[:90]}", Kind.LOG, found[-1].place, len(found))
    return unknown("no line repeats about held transfers" if last else "no work lines")


def _held_after_aborts(case: Case, view: InstanceView) -> Answer:
    """The engine waits again and again for transfers of requests whose clients left."""
    held, aborts = _held(case, view), many_aborts(case, view)
    if held.is_true and aborts.is_true:
        return yes(f"{held.text}; {aborts.text}", Kind.LOG, held.place, held.value)
    return unknown(held.text if not held.is_true else aborts.text)


def _stays_in_use(case: Case, view: InstanceView) -> Answer:
    """Ask for any sign of memory that nobody holds: aborts alone are no leak."""
    signs = [ask(case, view) for ask in (_ENGINE_SAYS, _idle_use, _ownerless, _climbs, _executor_waits, _held)]
    return next((answer for answer in signs if answer.is_true), unknown("no memory is known to stay in use"))


KV_LEAK = Analyzer(
    code="PD0403",
    roles=ENGINES,
    inputs=(Kind.METRICS, Kind.LOG, Kind.STACKS, Kind.HTTP, Kind.PROCESS, Kind.PROBE),
    explains=(*STALLS, Symptom.LEAK, Symptom.STUCK_SUBSET, Symptom.QUEUED),
    checks=(
        requires("it lives", alive),
        requires("memory stays in use", _stays_in_use),
        proves("the engine misses pages", _ENGINE_SAYS),
        proves("KV in use without requests", _idle_use),
        proves("pages are left of ended requests", _ownerless),
        proves("KV use climbs against the load, after aborts", _climbs_after_aborts),
        proves("executors wait for failed transfers", _executor_waits),
        proves("it waits for transfers of aborted requests", _held_after_aborts),
        suggests("held transfers are reported again and again", _held),
        suggests("KV use climbs against the load", _climbs),
        suggests("requests were aborted", many_aborts),
        suggests("aborts came in a burst", abort_burst),
    ),
)


def _host(case: Case, view: InstanceView) -> Answer:
    found = host_memory(view)
    if found is None:
        return unknown(f"host memory of {view.name} is not known to be too much")
    return yes(
        f"an idle rank of {view.name} holds {found[0] / 1024:.0f} GB of host memory",
        Kind.PROCESS,
        Place(f"{view.name}/process.toml"),
        found[0],
        "MB",
    )


HOST_LEAK = Analyzer(
    code="PD0404",
    roles=ENGINES,
    inputs=(Kind.PROCESS, Kind.METRICS, Kind.LOG, Kind.HTTP),
    explains=(Symptom.LEAK,),
    checks=(
        requires("it lives", alive),
        proves("an idle rank holds too much memory", _host),
        suggests("requests were aborted", many_aborts),
    ),
)

ANALYZERS = (KV_LEAK, HOST_LEAK)
