"""The prefix cache: finds what was computed, keeps what is in use, gives up the oldest."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from engine.kvcache.pages import Owner, PageLedger
from engine.kvcache.prefix_cache import Lease, PrefixCache

SIZE = 4


class Shelf:
    """A pool with its cache."""

    def __init__(self, pages: int = 8, enabled: bool = True) -> None:
        self.ledger = PageLedger(pages)
        self.cache = PrefixCache(SIZE, self.ledger, enabled)

    def put(self, tokens: list[int]) -> list[int]:
        """Compute a sequence that ends at once; return its pages."""
        pages = self.cache.take(-(-len(tokens) // SIZE), Owner.RUNNING)
        assert pages is not None
        self.cache.give_back(Lease(), tokens, len(tokens), pages)
        return pages


def test_whole_pages_of_an_ended_sequence_are_found_again() -> None:
    """Of ten tokens two pages are kept; the half page is free."""
    shelf = Shelf()
    pages = shelf.put(list(range(10)))
    lease = shelf.cache.match([*range(10), 99], limit=10)
    assert lease.pages == pages[:2]
    assert (shelf.ledger.ledger().pinned, shelf.ledger.ledger().free) == (2, 6)


def test_tokens_that_differ_in_the_second_page_share_the_first() -> None:
    """A page counts only behind the pages before it."""
    shelf = Shelf()
    pages = shelf.put([1, 2, 3, 4, 5, 6, 7, 8])
    assert shelf.cache.match([1, 2, 3, 4, 5, 6, 7, 9], limit=8).pages == pages[:1]
    assert shelf.cache.match([5, 6, 7, 8], limit=4).pages == []


def test_the_limit_keeps_the_last_token_out() -> None:
    """Eight tokens of which seven may be reused: one page."""
    shelf = Shelf()
    shelf.put(list(range(8)))
    assert shelf.cache.length(list(range(8)), limit=7) == 4


def test_only_right_tokens_are_kept() -> None:
    """Of two pages whose second is not certainly right, the first stays."""
    shelf = Shelf()
    pages = shelf.cache.take(2, Owner.READING)
    assert pages is not None
    shelf.cache.give_back(Lease(), list(range(8)), 7, pages)
    assert shelf.cache.length(list(range(8)), 8) == 4
    assert shelf.ledger.free_count == 7


def test_the_least_recently_used_goes_first() -> None:
    """Of a and b, a was used again, so a page for c comes from b."""
    shelf = Shelf(pages=2)
    a, b = [1] * SIZE, [2] * SIZE
    shelf.put(a)
    shelf.put(b)
    shelf.cache.release(shelf.cache.match(a, SIZE))
    assert shelf.cache.take(1, Owner.RUNNING) is not None
    assert (shelf.cache.length(a, SIZE), shelf.cache.length(b, SIZE)) == (SIZE, 0)
    assert shelf.cache.evicted_pages == 1


def test_a_page_in_use_is_never_given_up() -> None:
    """With one of two pages pinned there is one to take, not two."""
    shelf = Shelf(pages=2)
    shelf.put([1] * SIZE)
    shelf.put([2] * SIZE)
    lease = shelf.cache.match([1] * SIZE, SIZE)
    assert shelf.cache.available == 1
    assert shelf.cache.take(2, Owner.RUNNING) is None
    assert shelf.cache.take(1, Owner.RUNNING) is not None
    assert shelf.cache.length([1] * SIZE, SIZE) == SIZE
    shelf.cache.release(lease)


def test_two_that_computed_the_same_leave_one_copy() -> None:
    """The second's own page is freed at its end, the first's is kept."""
    shelf = Shelf()
    leases, tokens = (Lease(), Lease()), [1] * SIZE
    first, second = (shelf.cache.take(1, Owner.RUNNING) for _ in leases)
    assert first is not None
    assert second is not None
    shelf.cache.extend(leases[0], tokens, SIZE, first)
    shelf.cache.extend(leases[1], tokens, SIZE, second)
    assert (leases[0].own(first), leases[1].own(second)) == ([], second)
    shelf.cache.give_back(leases[1], tokens, SIZE, second)
    assert shelf.ledger.free_count == 7
    shelf.cache.give_back(leases[0], tokens, SIZE, first)
    assert shelf.cache.match(tokens, SIZE).pages == first


def test_dropped_pages_are_not_found_and_come_back_from_their_last_user() -> None:
    """A drop frees what nobody uses at once, the rest when it is released."""
    shelf = Shelf()
    shelf.put([1] * SIZE)
    shelf.put([2] * SIZE)
    lease = shelf.cache.match([1] * SIZE, SIZE)
    shelf.cache.drop()
    assert shelf.cache.length([1] * SIZE, SIZE) == 0
    assert shelf.ledger.free_count == 7
    shelf.cache.release(lease)
    assert shelf.ledger.free_count == 8


def test_switched_off_it_keeps_nothing() -> None:
    """Every page is free at once."""
    shelf = Shelf(enabled=False)
    shelf.put(list(range(8)))
    assert shelf.ledger.free_count == 8
    assert shelf.cache.match(list(range(8)), 8).pages == []


@dataclass
class Running:
    """A sequence of the machine below."""

    tokens: list[int]
    lease: Lease
    pages: list[int]
    computed: int = field(default=0)


class CacheMachine(RuleBasedStateMachine):
    """Sequences come, compute and go; the model is what a naive pool knows: page -> the tokens it was computed from."""

    running = Bundle("running")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = PageLedger(12)
        self.cache = PrefixCache(SIZE, self.ledger)
        self.content: dict[int, tuple[int, ...]] = {}
        self.live: list[Running] = []

    @rule(target=running, tokens=st.lists(st.integers(0, 1), min_size=1, max_size=20))
    def enter(self, tokens: list[int]) -> Running | None:
        lease = self.cache.match(tokens, len(tokens) - 1)
        assert len(lease.pages) * SIZE < len(tokens)
        for at, page in enumerate(lease.pages):
            assert self.content[page] == tuple(tokens[: (at + 1) * SIZE])
        count = -(-len(tokens) // SIZE) - len(lease.pages)
        before = self.cache.available
        new = self.cache.take(count, Owner.RUNNING)
        assert (new is None) == (before < count)
        if new is None:
            self.cache.release(lease)
            return None
        used = {page for other in self.live for page in other.pages}
        assert not used & set(new)
        sequence = Running(tokens, lease, lease.pages + new, len(lease.pages) * SIZE)
        self.live.append(sequence)
        return sequence

    @rule(sequence=running, count=st.integers(1, 20))
    def compute(self, sequence: Running | None, count: int) -> None:
        if sequence in self.live and sequence is not None:
            start, sequence.computed = sequence.computed, min(len(sequence.tokens), sequence.computed + count)
            for at in range(start // SIZE, sequence.computed // SIZE):
                self.content[sequence.pages[at]] = tuple(sequence.tokens[: (at + 1) * SIZE])
            self.cache.extend(sequence.lease, sequence.tokens, sequence.computed, sequence.pages)

    @rule(sequence=consumes(running), is_right=st.booleans())
    def leave(self, sequence: Running | None, is_right: bool) -> None:
        if sequence in self.live and sequence is not None:
            self.live.remove(sequence)
            right = sequence.computed if is_right else 0
            self.cache.give_back(sequence.lease, sequence.tokens, right, sequence.pages)

    @rule()
    def drop(self) -> None:
        self.cache.drop()

    @invariant()
    def pages_in_use_are_whole(self) -> None:
        for sequence in self.live:
            for at in range(sequence.computed // SIZE):
                assert self.content[sequence.pages[at]] == tuple(sequence.tokens[: (at + 1) * SIZE])

    @invariant()
    def ledger_agrees(self) -> None:
        counts = self.ledger.ledger()
        in_use = {page for sequence in self.live for page in (*sequence.pages, *sequence.lease.pages)}
        assert counts.balanced
        assert counts.running + counts.pinned == len(in_use)
        assert counts.free + counts.cached == 12 - len(in_use) == self.cache.available


TestCache = CacheMachine.TestCase
