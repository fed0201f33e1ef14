"""How a dead thread shows, and the one shape of the causes that are dead threads.

It is absent in a dump, it printed its last words, or the engine itself says that it is down.
"""

from __future__ import annotations

import msgspec

from pdctl.diagnose.analyzer import FAILURES, STALLS, Analyzer, Ask, Check, proves, requires
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.self_report import not_reported_alive, reported_dead
from pdctl.diagnose.events import Occurrence
from pdctl.diagnose.predicates import alive, gpus_do_not_spin
from pdctl.diagnose.standing import full_dumps, threads_running
from pdctl.diagnose.symptoms import Symptom, progress
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.pdctl_signals import CONTROL_THREAD, DATA_THREAD
from pdctl.dialects.signals import Event, Gauge


class ThreadKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of thread: how families call it, and what waits for it."""

    functions: tuple[str, ...]
    """Functions it runs, in disaggregation/{nixl,mooncake,common,mori}/conn.py of SGLang 0.4.7 to 0.5.23 and others."""
    reported_as: str
    """Its name in what our own engine reports."""
    serves: Gauge
    """The queue that stands still without it."""
    last_words: str = ""
    """Text of its end, where the line does not name the function."""
    backends: tuple[str, ...] = ()
    """Transfer backends in which every version has it; empty: all."""

    def died_in(self, item: Occurrence) -> bool:
        """Return whether a line is about the end of such a thread."""
        is_named = item.group("thread").split(" ")[0] in self.functions
        return is_named or bool(self.last_words and self.last_words in item.text)


BOOTSTRAP = ThreadKind(
    functions=("bootstrap_thread", "bootstrap_thread_guarded", "bootstrap_worker"),
    reported_as=CONTROL_THREAD,
    serves=Gauge.INFLIGHT,
    last_words="MsgGuard",
)
STATUS = ThreadKind(
    functions=("decode_thread", "decode_listener_thread", "decode_staging_thread", "decode_worker"),
    reported_as=CONTROL_THREAD,
    serves=Gauge.TRANSFER,
    # NIXL's decode has had a thread of its own only since 0.5.20.
    backends=("mooncake", "mori"),
)
TRANSFER = ThreadKind(functions=("transfer_worker", "Transfer"), reported_as=DATA_THREAD, serves=Gauge.INFLIGHT)

_FAMILIES = ("sglang", "dynamo", "llm-d", "")
"""Families whose dumps show these threads under these names."""


def dead_thread(code: str, kind: ThreadKind, roles: tuple[str, ...], *signs: Check) -> Analyzer:
    """Return the cause that a thread of this kind is dead; `signs` are what else shows it."""
    return Analyzer(
        code=code,
        roles=roles,
        inputs=tuple(Kind),
        explains=(*STALLS, *FAILURES, Symptom.STUCK_SUBSET, Symptom.UNHEALTHY),
        checks=(
            requires("the family has such a thread", _has_such_threads),
            requires("it lives", alive),
            requires("no GPU spins without a step", gpus_do_not_spin),
            requires("it does not report the thread alive", not_reported_alive(kind.reported_as)),
            proves("it reports the thread dead", reported_dead(kind.reported_as)),
            proves("a traceback ended it", _printed_death(kind)),
            *signs,
        ),
    )


def _has_such_threads(case: Case, view: InstanceView) -> Answer:
    if view.raw.dialect not in (*_FAMILIES, "pdctl"):
        return no(f"{view.raw.dialect} has no such thread", Kind.TOPOLOGY)
    return yes("engines of this family have such a thread", Kind.TOPOLOGY)


def absent(kind: ThreadKind) -> Ask:
    """Ask whether schedulers that show their other threads lack this one."""

    def ask(case: Case, view: InstanceView) -> Answer:
        dumps = full_dumps(view.raw.stacks)
        name = kind.functions[0]
        if not dumps or view.raw.dialect not in _FAMILIES:
            return unknown(f"no full thread list of {view.name}")
        lacking = [process for process in dumps if threads_running(process, *kind.functions) == 0]
        if not lacking:
            return no(f"all {len(dumps)} schedulers of {view.name} have a {name}", Kind.STACKS, dumps[0].place, 0)
        has_backend = not kind.backends or (view.transfer or "").startswith(kind.backends)
        if len(lacking) == len(dumps) and not has_backend:
            return unknown(f"this backend of {view.name} may have no {name}")
        others = ", ".join(sorted({thread.name for thread in lacking[0].threads if "(" in thread.name})[:3])
        text = f"{len(lacking)} of {len(dumps)} schedulers of {view.name} have no {name}"
        text += f"; they show {others or f'{len(lacking[0].threads)} others'}"
        return yes(text, Kind.STACKS, lacking[0].place, len(lacking))

    return ask


def not_seen_alive(kind: ThreadKind) -> Ask:
    """Ask that no full dump shows the thread on every scheduler; without a dump that holds."""

    def ask(case: Case, view: InstanceView) -> Answer:
        shown = absent(kind)(case, view)
        if shown.is_false:
            return shown
        return yes(f"no dump of {view.name} shows a {kind.functions[0]} everywhere", Kind.STACKS)

    return ask


def _printed_death(kind: ThreadKind) -> Ask:
    """Ask whether a traceback ended the thread, and nothing succeeded since."""

    def ask(case: Case, view: InstanceView) -> Answer:
        found = [item for item in view.events(Event.THREAD_DIED) if kind.died_in(item)]
        if not found:
            return unknown(f"{view.name} prints no such end")
        last = found[-1]
        is_troubled = case.has(Symptom.STALLED, Symptom.STUCK_SUBSET, Symptom.FAILING, Symptom.FAILURES)
        if progress(view, kind.serves) and not is_troubled:
            return no(f"{view.name} printed the end of a thread, but its requests pass since", Kind.LOG, last.place)
        return yes(f"{view.name}: {last.text[:120]}", Kind.LOG, last.place, len(found))

    return ask
