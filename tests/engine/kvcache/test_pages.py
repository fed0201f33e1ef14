"""The page ledger: nothing is handed out twice, nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from engine.kvcache.pages import Owner, PageLedger


def test_takes_the_smallest_run_that_fits() -> None:
    """A prompt of three pages goes into the gap of three, not into the larger one."""
    ledger = PageLedger(20)
    ledger.take(20, Owner.RUNNING)
    ledger.free([2, 3, 4, 10, 11, 12, 13, 14])
    assert ledger.take(3, Owner.RUNNING) == [2, 3, 4]


def test_takes_the_largest_runs_when_none_fits() -> None:
    """Six pages from gaps of five, one and two come from the five first, then from the two."""
    ledger = PageLedger(20)
    ledger.take(20, Owner.RUNNING)
    ledger.free([1, 4, 5, 10, 11, 12, 13, 14])
    assert ledger.take(6, Owner.RUNNING) == [4, 10, 11, 12, 13, 14]


def test_a_growing_sequence_gets_the_page_behind_its_last() -> None:
    """Neighbours stay neighbours while the next page is free."""
    ledger = PageLedger(8)
    assert ledger.take(2, Owner.RUNNING) == [0, 1]
    ledger.free([0])
    assert ledger.take(1, Owner.RUNNING, after=1) == [2]


def test_takes_all_or_nothing() -> None:
    """Too few free pages change nothing (invariant 4)."""
    ledger = PageLedger(4)
    ledger.take(2, Owner.RUNNING)
    assert ledger.take(3, Owner.RUNNING) is None
    assert ledger.free_count == 2


def test_freeing_a_free_page_is_a_bug() -> None:
    """A double free raises instead of corrupting the pool."""
    ledger = PageLedger(4)
    pages = ledger.take(2, Owner.READING)
    assert pages is not None
    ledger.free(pages)
    with pytest.raises(ValueError, match="free"):
        ledger.free(pages)


class LedgerMachine(RuleBasedStateMachine):
    """Random takes, moves and frees against a plain model: a dictionary of page to owner."""

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = PageLedger(32)
        self.owners: dict[int, Owner] = {}

    @rule(target=held, count=st.integers(1, 12), owner=st.sampled_from([o for o in Owner if o is not Owner.FREE]))
    def take(self, count: int, owner: Owner) -> list[int]:
        pages = self.ledger.take(count, owner)
        if pages is None:
            assert 32 - len(self.owners) < count
            return []
        assert len(set(pages)) == count
        assert not set(pages) & self.owners.keys()
        self.owners.update(dict.fromkeys(pages, owner))
        return pages

    @rule(pages=held, owner=st.sampled_from([Owner.READING, Owner.FENCING, Owner.HELD_FOR_PEER]))
    def move(self, pages: list[int], owner: Owner) -> None:
        if pages and pages[0] in self.owners:
            self.ledger.move(pages, owner)
            self.owners.update(dict.fromkeys(pages, owner))

    @rule(pages=consumes(held))
    def free(self, pages: list[int]) -> None:
        self.ledger.free(pages)
        for page in pages:
            del self.owners[page]

    @invariant()
    def counts_agree(self) -> None:
        ledger = self.ledger.ledger()
        assert ledger.balanced
        assert ledger.free == 32 - len(self.owners)
        assert ledger.fencing == sum(owner is Owner.FENCING for owner in self.owners.values())


TestLedger = LedgerMachine.TestCase
