"""PD0101: an instance is gone, and no other finding says why."""

from __future__ import annotations

from pdctl.diagnose.analyzer import DEATHS, EVERYONE, FAILURES, STALLS, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.processes import gone, no_reason, not_starting
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event


def _peers_lost_it(case: Case, view: InstanceView) -> Answer:
    for peer in case.peers(view):
        found = peer.events(Event.PEER_LOST)
        if found:
            return yes(f"{peer.name} lost its connection to a peer", Kind.LOG, found[-1].place, len(found))
    return unknown("no peer says that it lost it")


def _gone_among_the_living(case: Case, view: InstanceView) -> Answer:
    """Its death is the cause where others live on, or where its exit status or its log would name another one."""
    answer = gone(case, view)
    if not answer.is_true:
        return answer
    has_status = any(item.exit_code is not None or item.signal is not None for item in view.raw.processes)
    others = [one for one in case.views if one is not view and one.is_alive]
    if not others and not has_status and not view.has_log:
        return unknown(f"{answer.text}, and so is everything else; neither exit status nor log tells why")
    return answer


def _not_restarted(case: Case, view: InstanceView) -> Answer:
    """Ask that it is in no restart loop: restarts that its last run outlived are history."""
    ran = view.last_run_s
    if view.restarts() >= LIMITS.crash_restarts and (ran is None or ran < LIMITS.startup_s):
        return no(f"{view.name} is restarted again and again ({view.restarts()}x)", Kind.PROCESS)
    return yes(f"{view.name} is not restarted over and over", Kind.PROCESS)


ANALYZER = Analyzer(
    code="PD0101",
    roles=EVERYONE,
    inputs=(Kind.PROCESS, Kind.HTTP, Kind.LOG),
    explains=(*DEATHS, *FAILURES, *STALLS, Symptom.UNHEALTHY),
    checks=(
        requires("it is gone", gone),
        requires("it is not starting", not_starting),
        requires("no finding of its own explains the end", no_reason),
        requires("it is not in a restart loop", _not_restarted),
        proves("no process is left, or nobody listens", _gone_among_the_living),
        suggests("peers lost it", _peers_lost_it),
    ),
)
