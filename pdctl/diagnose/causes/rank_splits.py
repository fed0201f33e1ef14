"""How ranks stand to each other, as the causes in scheduler and forward pass ask it."""

from __future__ import annotations

from pdctl.diagnose.analyzer import FAILURES, STALLS
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.ranks import (
    Split,
    Stand,
)
from pdctl.diagnose.standing import is_standing_still, stands
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView

EXPLAINS = (*STALLS, *FAILURES, Symptom.CRASHED, Symptom.UNHEALTHY, Symptom.STARTING, Symptom.STUCK_SUBSET)


def has_ranks(case: Case, view: InstanceView) -> Answer:
    sizes = [size for size in (view.raw.tp, view.raw.dp, view.raw.pp) if size is not None]
    now, before = stands(view)
    seen = max((stand.ranks for stand in (now, before) if stand), default=0)
    if seen > 1 or any(size > 1 for size in sizes):
        return yes(f"{view.name} has several ranks", Kind.TOPOLOGY, value=max([*sizes, seen]))
    if view.raw.tp == 1 and not any(size > 1 for size in sizes):
        return no(f"{view.name} has one rank", Kind.TOPOLOGY, value=1)
    return unknown(f"the number of ranks of {view.name} is not known")


def settled(case: Case, view: InstanceView, wanted: Split) -> Answer:
    """Ask whether the ranks are split this way for good: two dumps agree, or one dump of an engine that stands."""
    now, before = stands(view)
    dumps = [stand for stand in (now, before) if stand is not None and stand.ranks > 1]
    if not dumps:
        return unknown(f"no stacks of several ranks of {view.name}")
    other = [stand for stand in dumps if stand.split is not wanted]
    if other:
        return no(
            f"{view.name}: ranks are {other[0].split.value}: {other[0].text()}",
            Kind.STACKS,
            other[0].groups[0].place,
        )
    if len(dumps) == 2 and not agree(dumps[0], dumps[1]):
        return unknown("the two dumps differ: the ranks move")
    if len(dumps) == 1 and not is_standing_still(case, view):
        return unknown("one dump of a moving engine proves nothing")
    return yes(f"{view.name}: {dumps[0].text()}", Kind.STACKS, dumps[0].groups[0].place, len(dumps[0].groups))


def agree(one: Stand, other: Stand) -> bool:
    """Return whether some rank waits in the same collective in both dumps while another stands elsewhere in both."""
    places = [{rank: group.path for group in stand.groups for rank in group.ranks} for stand in (one, other)]
    shared = [rank for rank in places[0] if rank in places[1]]
    return any(places[0][rank] == places[1][rank] for rank in shared)


def is_pipeline(view: InstanceView) -> bool:
    return (view.raw.pp or 1) > 1


def split_in_control(case: Case, view: InstanceView) -> Answer:
    return settled(case, view, Split.CONTROL)
