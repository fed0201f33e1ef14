"""PD0501: ranks left each other in the scheduler; a collective waits for ever."""

from __future__ import annotations

from pdctl.diagnose.analyzer import ENGINES, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.rank_splits import EXPLAINS, has_ranks, is_pipeline, split_in_control
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import logged, said_last
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event


def _sets_differ(case: Case, view: InstanceView) -> Answer:
    """Ranks decided for themselves: the requests they timed out are not the same."""
    by_rank: dict[str, set[str]] = {}
    events = view.end_events(Event.WAITING_TIMEOUT)
    for item in events:
        by_rank.setdefault(item.rank, set()).add(item.group("rid"))
    if len(by_rank) < 2:
        return unknown("no rank tells which requests it gave up")
    sizes = {rank: len(rids) for rank, rids in by_rank.items()}
    if len({frozenset(rids) for rids in by_rank.values()}) == 1:
        return no(f"all {len(by_rank)} ranks gave up the same {next(iter(sizes.values()))} requests", Kind.LOG)
    small, big = min(sizes, key=lambda rank: sizes[rank]), max(sizes, key=lambda rank: sizes[rank])
    return yes(
        f"{big} gave up {sizes[big]} requests, {small} {sizes[small]}: ranks of {view.name} decided alone",
        Kind.LOG,
        events[-1].place,
        len(by_rank),
    )


def _one_rank_prints(case: Case, view: InstanceView) -> Answer:
    """Some ranks went on printing steps after others had stopped."""
    last: dict[str, float] = {}
    for work in view.works:
        age = view.age_s(work.at)
        if age is not None:
            last[work.rank] = age
    if len(last) < 2:
        return unknown("one rank prints for all")
    spread = max(last.values()) - min(last.values())
    if spread >= LIMITS.silence_s and min(last.values()) >= LIMITS.silence_s:
        return yes(f"ranks of {view.name} stopped {spread:.0f} s apart", Kind.LOG, value=spread, unit="s")
    return unknown("all ranks stopped together")


ANALYZER = Analyzer(
    code="PD0501",
    roles=ENGINES,
    inputs=(Kind.STACKS, Kind.LOG, Kind.TOPOLOGY, Kind.METRICS, Kind.HTTP, Kind.PROBE, Kind.SOURCE),
    explains=EXPLAINS,
    checks=(
        requires("it has several ranks", has_ranks),
        proves(
            "ranks stand at different points of the scheduler",
            lambda case, view: _not_pipeline(view, split_in_control(case, view)),
        ),
        proves("ranks gave up different requests", _sets_differ),
        proves(
            "a collective met another of a different size",
            said_last(Event.COLLECTIVE_MISMATCH, otherwise="no collective complains about sizes"),
        ),
        suggests(
            "a collective timed out",
            lambda case, view: logged(view, Event.COLLECTIVE_TIMEOUT, what="a collective that timed out"),
        ),
        suggests("ranks stopped at different times", _one_rank_prints),
    ),
)


def _not_pipeline(view: InstanceView, answer: Answer) -> Answer:
    """Stages of a pipeline stand at different points by nature."""
    return unknown("pipeline stages stand at different points anyway") if is_pipeline(view) else answer
