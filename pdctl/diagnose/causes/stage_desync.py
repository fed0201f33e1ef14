"""PD0502: pipeline stages left each other."""

from __future__ import annotations

from pdctl.diagnose.analyzer import ENGINES, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.bursts import abort_burst, room_failures
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.rank_splits import EXPLAINS, is_pipeline, split_in_control
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.standing import silent_s
from pdctl.diagnose.view import InstanceView


def _has_stages(case: Case, view: InstanceView) -> Answer:
    printed = [*(work.rank for work in view.works), *(item.rank for item in view.occurrences)]
    ranks = {word for rank in printed for word in rank.split() if word.startswith("PP")}
    if is_pipeline(view) or len(ranks) > 1:
        return yes(f"{view.name} has pipeline stages", Kind.TOPOLOGY, value=view.raw.pp)
    if view.raw.pp == 1 or (view.has_log and view.raw.pp is None and not ranks):
        return no(f"{view.name} has one stage", Kind.TOPOLOGY, value=1)
    return unknown(f"the stages of {view.name} are not known")


def _stage(rank: str) -> str:
    return next((word for word in rank.split() if word.startswith("PP")), "")


def _stages_disagree(case: Case, view: InstanceView) -> Answer:
    """One stage failed a request that another ran, and nobody printed a step since."""
    failures = room_failures(view)
    stages = {_stage(item.rank) for item in failures} - {""}
    others = {_stage(item.rank) for item in view.works} - stages - {""}
    silence = silent_s(view)
    if not failures or not stages or silence is None or silence < LIMITS.silence_s:
        return unknown("no stage failed a request alone, or steps go on")
    first = failures[-1]
    together = [
        work
        for work in view.works
        if _stage(work.rank) in others
        and work.at
        and first.at
        and abs((work.at - first.at).total_seconds()) <= LIMITS.same_second_s
    ]
    if together or others:
        return yes(
            f"{view.name}: {', '.join(sorted(stages))} failed a request, "
            f"{', '.join(sorted(others)) or 'others'} ran on; silent for {silence:.0f} s",
            Kind.LOG,
            first.place,
            silence,
            "s",
        )
    return unknown("all stages failed the same requests")


def _stage_split(case: Case, view: InstanceView) -> Answer:
    if not is_pipeline(view):
        return unknown("no pipeline")
    return split_in_control(case, view)


ANALYZER = Analyzer(
    code="PD0502",
    roles=ENGINES,
    inputs=(Kind.STACKS, Kind.LOG, Kind.TOPOLOGY, Kind.METRICS, Kind.HTTP, Kind.PROBE, Kind.SOURCE),
    explains=EXPLAINS,
    checks=(
        requires("it has pipeline stages", _has_stages),
        proves("a stage failed what another ran", _stages_disagree),
        suggests("stages stand at different points", _stage_split),
        suggests("a burst of aborts came before", abort_burst),
    ),
)
