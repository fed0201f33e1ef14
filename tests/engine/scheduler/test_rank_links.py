"""Plans on their way to the other ranks, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from engine.errors import RankLost
from engine.messages import SamplingParams
from engine.scheduler.rank_links import Leave, Loaded, OtherRanks, PlanSource, StepDone
from engine.scheduler.step_plan import PromptScore, SamplingStart, SequenceStep, StepGap, StepPlan
from tests.waiting import eventually

START = SamplingStart(SamplingParams(max_tokens=3, logit_bias={7: 1.5}, stop_token_ids=(4,)), [1, 2, 3], [9])
PLAN = StepPlan(
    7,
    1,
    [
        SequenceStep("a", 8, [264], [3, 1, 7], True),
        SequenceStep("b", 0, [1, 2, 3], [5], True, PromptScore(0, [2, 3], 1), START),
    ],
    ["c"],
)


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """A context whose sockets are closed at the end."""
    made = zmq.Context()
    yield made
    made.destroy(linger=0)


@pytest.fixture
def ranks(context: zmq.Context[zmq.Socket[bytes]], tmp_path: Path) -> tuple[OtherRanks, list[PlanSource]]:
    """Rank 0's end, and those of ranks 1 and 2."""
    others = OtherRanks(context, str(tmp_path), 3)
    return others, [PlanSource(context, str(tmp_path), rank) for rank in (1, 2)]


def load(others: OtherRanks, sources: list[PlanSource]) -> None:
    """Go on when all have reported, as an instance does; before, a rank may not be there yet."""
    for number, source in enumerate(sources):
        source.report(Loaded(100 + number))
    others.wait_loaded()


def received(source: PlanSource) -> StepPlan | Leave:
    """Wait for one message."""
    (message,) = eventually(lambda: source.receive(100))
    return message


def test_every_rank_gets_the_whole_plan(ranks: tuple[OtherRanks, list[PlanSource]]) -> None:
    """Nothing of it changes on the way; then all are told to leave."""
    others, sources = ranks
    load(others, sources)
    others.send(PLAN)
    assert [received(source) for source in sources] == [PLAN, PLAN]
    others.leave()
    assert [received(source) for source in sources] == [Leave(), Leave()]


def test_rank_0_goes_on_when_all_have_reported(ranks: tuple[OtherRanks, list[PlanSource]]) -> None:
    """First that they are loaded, then each step."""
    others, sources = ranks
    load(others, sources)
    for source in sources:
        source.report(StepDone(1))
    others.wait_done(1)
    assert others.pids == [100, 101]


def test_a_plan_for_a_rank_that_is_gone_is_an_error(ranks: tuple[OtherRanks, list[PlanSource]]) -> None:
    """Never a wait without end."""
    others, sources = ranks
    load(others, sources)
    others.send(PLAN)
    assert received(sources[1]) == PLAN
    sources[1].close()

    def is_refused() -> bool:
        try:
            others.send(PLAN)
        except RankLost as error:
            assert "rank 2" in str(error)
            return True
        return False

    eventually(is_refused)


def test_a_report_of_another_step_stops_the_instance(ranks: tuple[OtherRanks, list[PlanSource]]) -> None:
    """A rank that computed something else than rank 0 is noticed at once."""
    others, sources = ranks
    sources[0].report(StepDone(1))
    sources[1].report(StepDone(2))
    with pytest.raises(StepGap, match="plan 2 came where plan 1 was due"):
        others.wait_done(1)


def test_one_rank_alone_waits_for_nobody(context: zmq.Context[zmq.Socket[bytes]], tmp_path: Path) -> None:
    """No socket, no wait."""
    alone = OtherRanks(context, str(tmp_path), 1)
    alone.wait_loaded()
    alone.send(PLAN)
    alone.wait_done(7)
    alone.leave()
    assert list(tmp_path.iterdir()) == []
