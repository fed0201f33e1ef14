"""Where the ranks of our own engine stand: dumps as py-spy makes them (`tests/serving/test_rank_failpoints.py`)."""

from __future__ import annotations

from pdctl.diagnose.ranks import Split, stand_of
from pdctl.evidence.records import Frame, Place, ProcessStack, Thread

FOLLOWS = ("_run_module_as_main", "main", "_follow", "serve", "_turn", "receive", "poll")
LEADS = ("_run_module_as_main", "main", "_lead", "serve", "run", "turn", "receive", "poll")
COMPUTES = ("_bootstrap", "run", "_run", "compute_plan", "step", "forward", "_embedded", "all_reduce", "_wait")
IDLE = ("_bootstrap", "run", "_run")


def thread(name: str, functions: tuple[str, ...]) -> Thread:
    """Return a thread; functions outermost first."""
    return Thread(name, False, tuple(Frame(function, "engine/some.py") for function in reversed(functions)))


def rank(number: int, main: tuple[str, ...], steps: tuple[str, ...]) -> ProcessStack:
    """Return the dump of one rank."""
    threads = (thread("MainThread", main), thread("steps", steps))
    return ProcessStack(number, f"python -m engine.scheduler --rank {number}", threads, Place("stacks.txt"))


def split(*processes: ProcessStack) -> Split:
    """Return how they stand to each other."""
    stand = stand_of(processes)
    assert stand is not None
    return stand.split


def test_one_in_a_collective_and_one_without_a_plan_have_parted() -> None:
    """Rank 0 began a step that rank 1 has never heard of."""
    assert split(rank(0, LEADS, COMPUTES), rank(1, FOLLOWS, IDLE)) is Split.CONTROL


def test_ranks_in_the_same_collective_are_together() -> None:
    """Whatever their main threads do meanwhile."""
    assert split(rank(0, LEADS, COMPUTES), rank(1, FOLLOWS, COMPUTES)) is Split.TOGETHER


def test_ranks_without_work_wait_for_input() -> None:
    """Rank 0 for requests, the others for plans."""
    assert split(rank(0, LEADS, IDLE), rank(1, FOLLOWS, IDLE), rank(2, FOLLOWS, IDLE)) is Split.INPUT
