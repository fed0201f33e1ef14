"""PD0503: a scheduler waits in a blocking network call."""

from __future__ import annotations

from pdctl.diagnose.analyzer import ENGINES, Analyzer, proves, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.rank_splits import EXPLAINS
from pdctl.diagnose.predicates import logged
from pdctl.diagnose.ranks import (
    blocking_call,
    waits_for_input,
)
from pdctl.diagnose.standing import is_standing_still, stands
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event


def _blocked(case: Case, view: InstanceView) -> Answer:
    now, before = stands(view)
    dumps = [stand for stand in (now, before) if stand is not None]
    if not dumps:
        return unknown(f"no stacks of {view.name}")
    found = []
    for stand in dumps:
        calls = [
            (group, call)
            for group in stand.groups
            if not waits_for_input(group.thread) and (call := blocking_call(group.thread))
        ]
        if not calls:
            return no(f"no scheduler of {view.name} waits in a blocking call", Kind.STACKS, stand.groups[0].place)
        found.append(calls[0])
    if len(dumps) == 1 and not is_standing_still(case, view):
        return unknown("one dump of a moving engine proves nothing")
    group, call = found[0]
    own = next((function for function in reversed(group.path)), call)
    return yes(
        f"{', '.join(group.ranks[:4])} of {view.name} wait in {call} under {own}",
        Kind.STACKS,
        group.place,
        len(group.ranks),
    )


def _unreachable_info(case: Case, view: InstanceView) -> Answer:
    return logged(view, Event.REGISTRY_UNREACHABLE, Event.PEER_LOST, what="a peer that cannot be asked")


def _loop_unanswered(case: Case, view: InstanceView) -> Answer:
    answer = view.get("/server_info", "/get_server_info", "/health", "/health_generate")
    if answer is None:
        return unknown(f"nobody asked {view.name}")
    if answer.error == "timeout" or (answer.status is not None and answer.status >= 500):
        return yes(f"{answer.path} of {view.name}: {answer.error or answer.status}", Kind.HTTP)
    return no(f"{answer.path} of {view.name} answers", Kind.HTTP)


ANALYZER = Analyzer(
    code="PD0503",
    roles=ENGINES,
    inputs=(Kind.STACKS, Kind.LOG, Kind.HTTP, Kind.METRICS, Kind.PROBE, Kind.SOURCE),
    explains=EXPLAINS,
    checks=(
        proves("a scheduler waits in a blocking call", _blocked),
        suggests("its loop does not answer", _loop_unanswered),
        suggests("a peer cannot be asked", _unreachable_info),
    ),
)
