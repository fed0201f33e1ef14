"""PD0601: ranks hang inside a forward pass."""

from __future__ import annotations

from pdctl.diagnose.analyzer import ENGINES, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.rank_splits import EXPLAINS, has_ranks, settled, split_in_control
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import logged
from pdctl.diagnose.ranks import (
    Split,
    handle_wait,
    is_in_forward,
    waits_for_input,
)
from pdctl.diagnose.standing import silent_s, stands
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event


def _split_in_forward(case: Case, view: InstanceView) -> Answer:
    return settled(case, view, Split.FORWARD)


def _together_in_collective(case: Case, view: InstanceView) -> Answer:
    """Every rank stands in the same forward pass or device wait in both dumps."""
    now, before = stands(view)
    dumps = [stand for stand in (now, before) if stand is not None and stand.ranks > 1]
    if not dumps:
        return unknown(f"no stacks of {view.name}")
    threads = [group.thread for stand in dumps for group in stand.groups]
    if any(stand.split is not Split.TOGETHER for stand in dumps) or any(
        waits_for_input(thread) or handle_wait(thread) for thread in threads
    ):
        return unknown("the ranks do not stand together in a forward pass")
    if not any(is_in_forward(thread) for thread in threads):
        return unknown("the ranks are in no forward pass")
    if len(dumps) < 2:
        return unknown("one dump cannot tell slow from stuck")
    return yes(f"all ranks of {view.name} stay in {dumps[0].text()}", Kind.STACKS, dumps[0].groups[0].place)


def _device_collective_timeout(case: Case, view: InstanceView) -> Answer:
    found = [item for item in view.end_events(Event.COLLECTIVE_TIMEOUT) if "ms for" not in item.text]
    if found:
        return yes(f"{view.name}: {found[-1].text[:110]}", Kind.LOG, found[-1].place)
    return unknown("no device collective timed out")


def _spins(case: Case, view: InstanceView) -> Answer:
    loads = [gpu.util_percent for gpu in view.raw.gpus if gpu.util_percent is not None]
    if not loads:
        return unknown(f"the GPUs of {view.name} are not known")
    silence = silent_s(view)
    text = f"GPUs of {view.name} at {min(loads):.0f}-{max(loads):.0f} % without a step for {silence or 0:.0f} s"
    if min(loads) >= LIMITS.gpu_spin_percent and silence is not None and silence >= LIMITS.silence_s:
        return yes(text, Kind.GPU, value=min(loads), unit="%")
    return no(text, Kind.GPU, value=min(loads), unit="%")


def _ranks_wait(case: Case, view: InstanceView) -> Answer:
    return logged(view, Event.WORKER_SILENT, Event.WATCHDOG, what="ranks that wait for each other")


ANALYZER = Analyzer(
    code="PD0601",
    roles=ENGINES,
    inputs=(Kind.STACKS, Kind.LOG, Kind.GPU, Kind.HTTP, Kind.METRICS, Kind.PROBE, Kind.TOPOLOGY, Kind.SOURCE),
    explains=EXPLAINS,
    checks=(
        requires("it has several ranks", has_ranks),
        requires(
            "the ranks did not part in the scheduler",
            lambda case, view: _invert(split_in_control(case, view)),
        ),
        proves("ranks stand at different points of one forward pass", _split_in_forward),
        proves("all ranks stay in one forward pass", _together_in_collective),
        proves("a device collective timed out", _device_collective_timeout),
        suggests("GPUs spin without a step", _spins),
        suggests("ranks wait for each other", _ranks_wait),
    ),
)


def _invert(answer: Answer) -> Answer:
    if answer.is_true:
        return no(answer.text, answer.kind or Kind.STACKS, answer.place)
    return yes(answer.text, answer.kind or Kind.STACKS) if answer.is_false else answer
