"""The recheck of prompt pages finds what it is for, on every rank, and nothing is freed before it is done."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from engine.config import Role
from engine.kvcache.pool import KVLayout, KVPool
from engine.scheduler.recheck import PromptRecheck
from engine.transfer.data.checksums import page_checksums
from engine.transfer.interface import FirstToken, Landed, Summed, WantPages
from tests.engine.scheduler.building import Rig, generate

LAYOUT = KVLayout(layers=1, kv_heads=2, pages=8, page_size=4, head_dim=2, dtype="float32", item_bytes=4)
FIRST = FirstToken(token_id=109, logprob=None, finish=None, cached_tokens=0)


@dataclass
class FakeSequence:
    """As much of a sequence as the recheck looks at: a prompt of two whole pages and one begun."""

    rid: str = "a"
    prompt_length: int = 10
    pages: list[int] = field(default_factory=lambda: [5, 1, 2])


class Ranks:
    """Two real pools, summed as the ranks do; answers are kept until `answer`."""

    def __init__(self) -> None:
        self.pools = [KVPool(LAYOUT) for _ in range(2)]
        self.recheck = PromptRecheck(self._sum, LAYOUT.page_size, len(self.pools))
        self._answers: list[Summed] = []

    def _sum(self, rid: str, pages: list[int]) -> None:
        self._answers += [Summed(rid, rank, page_checksums(pool, pages)) for rank, pool in enumerate(self.pools)]

    def answer(self) -> None:
        """Hand the answers on."""
        answers, self._answers = self._answers, []
        for each in answers:
            self.recheck.take(each)

    def end(self, rid: str = "a") -> tuple[list[int], list[int]]:
        """End the request; return the counts of both ranks."""
        self.recheck.ends(rid)
        self.answer()
        assert not self.recheck.needs(rid)
        return self.recheck.rechecked, self.recheck.changed


@pytest.fixture
def ranks() -> Ranks:
    made = Ranks()
    made.recheck.landed(FakeSequence())  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("rank", [0, 1])
def test_one_changed_byte_of_a_whole_page_is_counted_for_its_rank(ranks: Ranks, rank: int) -> None:
    """A byte that another request wrote into the prompt's second page."""
    ranks.answer()
    ranks.pools[rank].bytes_view()[0, 1, 1, 1, 31] = 1
    assert ranks.end() == ([1, 1], [int(rank == 0), int(rank == 1)])


def test_the_changed_page_is_named(ranks: Ranks, caplog: pytest.LogCaptureFixture) -> None:
    """By its place in the prompt, with the rank."""
    ranks.answer()
    ranks.pools[1].bytes_view()[0, 0, 0, 1, 0] = 1
    ranks.end()
    assert caplog.messages == ["page 1 of the prompt of a changed on rank 1 while it was running"]


def test_tokens_behind_the_prompt_are_no_change(ranks: Ranks) -> None:
    """Decode writes into the page that the prompt only began, and into further ones."""
    ranks.answer()
    for pool in ranks.pools:
        pool.bytes_view()[:, :, :, 2] = 7
    assert ranks.end() == ([1, 1], [0, 0])


def test_a_retracted_sequence_is_not_compared(ranks: Ranks) -> None:
    """Its pages went back; what they hold now may be anybody's."""
    ranks.recheck.forget("a")
    ranks.answer()
    ranks.pools[0].bytes_view()[:, :, :, 5] = 9
    assert ranks.end() == ([0, 0], [0, 0])


def test_a_prompt_without_a_whole_page_is_not_summed(ranks: Ranks) -> None:
    """Three tokens in a page of four: there is nothing that decode does not write to."""
    ranks.recheck.landed(FakeSequence("b", 3, [6]))  # type: ignore[arg-type]
    assert not ranks.recheck.needs("b")


def test_pages_stay_until_every_rank_has_summed_them_again() -> None:
    """What was freed could hold another prompt before a slow rank looks at it."""
    rig, asked = Rig(Role.DECODE), list[tuple[str, list[int]]]()
    rig.book.recheck = PromptRecheck(lambda rid, pages: asked.append((rid, pages)), rig.config.page_size, 2)
    rig.send(generate("a", prompt=9, room=7, max_tokens=3))
    rig.happen(WantPages("a"))
    rig.happen(Landed("a", FIRST))
    rig.happen(Summed("a", 0, b"00000000"), Summed("a", 1, b"11111111"))
    rig.turn_until_idle()
    assert rig.tokens("a") == [109, 110, 111]
    assert asked == [("a", asked[0][1])] * 2
    rig.happen(Summed("a", 0, b"00000000"))
    assert not rig.everything_is_free()
    rig.happen(Summed("a", 1, b"11110111"))
    assert rig.everything_is_free()
    assert (rig.book.recheck.rechecked, rig.book.recheck.changed) == ([1, 1], [0, 1])
