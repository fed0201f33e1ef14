"""How a dead thread shows: its absence in a dump, or its last words."""

from __future__ import annotations

from pdctl.diagnose.analyzer import FAILURES, STALLS, Ask
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.standing import full_dumps, threads_running
from pdctl.diagnose.symptoms import Symptom, progress
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event, Gauge

# Function names of the threads: disaggregation/{nixl,mooncake,common,mori}/conn.py, 0.4.7 to 0.5.23.
BOOTSTRAP = ("bootstrap_thread", "bootstrap_thread_guarded", "bootstrap_worker")


STATUS = ("decode_thread", "decode_listener_thread", "decode_staging_thread", "decode_worker")


HAS_THREADS = ("sglang", "dynamo", "llm-d", "")


EXPLAINS = (*STALLS, *FAILURES, Symptom.STUCK_SUBSET, Symptom.UNHEALTHY)


def has_such_threads(case: Case, view: InstanceView) -> Answer:
    if view.raw.dialect not in (*HAS_THREADS, "pdctl"):
        return no(f"{view.raw.dialect} has no such thread", Kind.TOPOLOGY)
    return yes("engines of this family have such a thread", Kind.TOPOLOGY)


def absent(functions: tuple[str, ...]) -> Ask:
    """Ask whether schedulers that show their other threads lack this one."""

    def ask(case: Case, view: InstanceView) -> Answer:
        dumps = full_dumps(view.raw.stacks)
        if not dumps or view.raw.dialect not in HAS_THREADS:
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
            names = ", ".join(sorted({thread.name for thread in lacking[0].threads if "(" in thread.name})[:3])
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


def not_seen_alive(functions: tuple[str, ...]) -> Ask:
    """Ask that no full dump shows the thread on every scheduler; without a dump that holds."""

    def ask(case: Case, view: InstanceView) -> Answer:
        shown = absent(functions)(case, view)
        if shown.is_false:
            return shown
        return yes(f"no dump of {view.name} shows a {functions[0]} everywhere", Kind.STACKS)

    return ask


def printed_death(functions: tuple[str, ...], *gauges: Gauge) -> Ask:
    """Ask whether a traceback ended the thread, and nothing succeeded since."""

    def ask(case: Case, view: InstanceView) -> Answer:
        found = [
            item
            for item in view.events(Event.THREAD_DIED)
            if item.group("thread").split(" ")[0] in functions or (functions is BOOTSTRAP and "MsgGuard" in item.text)
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
