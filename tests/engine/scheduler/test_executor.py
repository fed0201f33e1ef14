"""The step thread: in order, beside its caller, and no error is lost in it."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from engine.scheduler.executor import StepThread
from engine.scheduler.runner import StepResult
from engine.scheduler.step_plan import StepPlan


@contextmanager
def running(run_step: Callable[[StepPlan], StepResult]) -> Iterator[StepThread]:
    """Run a step thread."""
    thread = StepThread(run_step, threads=1)
    thread.start()
    try:
        yield thread
    finally:
        thread.close()


def plan(number: int) -> StepPlan:
    """Return an empty plan."""
    return StepPlan(number, 0, [], [])


def taken(thread: StepThread, count: int) -> list[StepResult]:
    """Wait for so many results."""
    results: list[StepResult] = []
    while len(results) < count:
        assert select.select([thread.fileno()], [], [], 10)[0], "no result within 10 s"
        results += thread.take()
    return results


def test_results_come_in_the_order_of_the_plans() -> None:
    """The descriptor says when to look."""
    with running(lambda plan: StepResult(plan.number)) as thread:
        for number in range(1, 6):
            thread.submit(plan(number))
        assert [result.number for result in taken(thread, 5)] == [1, 2, 3, 4, 5]


def test_the_caller_goes_on_while_a_step_runs() -> None:
    """Another plan is handed in beside it; nothing is there to take."""
    goes_on = threading.Event()

    def step(plan: StepPlan) -> StepResult:
        assert goes_on.wait(10)
        return StepResult(plan.number)

    with running(step) as thread:
        thread.submit(plan(1))
        thread.submit(plan(2))
        assert thread.take() == []
        goes_on.set()
        assert len(taken(thread, 2)) == 2


def test_the_error_of_a_step_is_raised_where_its_result_is_taken() -> None:
    """And no later plan is computed: it would build on the one that failed."""
    computed: list[int] = []

    def step(plan: StepPlan) -> StepResult:
        if plan.number == 2:
            raise ValueError("no such page")
        computed.append(plan.number)
        return StepResult(plan.number)

    with running(step) as thread:
        for number in (1, 2, 3):
            thread.submit(plan(number))
        with pytest.raises(ValueError, match="no such page"):
            taken(thread, 3)
    assert computed == [1]


def test_the_thread_computes_with_as_many_threads_as_configured_and_without_gradients() -> None:
    """Both are settings of a thread in torch."""
    seen: list[tuple[int, bool]] = []

    def step(plan: StepPlan) -> StepResult:
        seen.append((torch.get_num_threads(), torch.is_grad_enabled()))
        return StepResult(plan.number)

    with running(step) as thread:
        thread.submit(plan(1))
        taken(thread, 1)
    assert seen == [(1, False)]
