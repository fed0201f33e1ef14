"""Prompts whose KV is still in the pool: whole pages found by their tokens. Used by the loop only; no locks.

A radix tree whose step is one page: a node is the page of `page_size` tokens that follow its parent's. So there are
never more nodes than pages, nothing is ever split, and a page is given up alone.

A page of the cache is CACHED while nobody uses it, and PINNED (or HELD_FOR_PEER) while a lease does. A lease pins
every page from the root on, and gives them back the deepest first: so `_idle`, which is in the order of last use,
always has a page before the one that it follows, and its first is the least recently used *leaf*.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.kvcache.pages import Owner, PageLedger

Key = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Node:
    """One page of the cache."""

    page: int
    key: Key
    """Its tokens."""
    parent: Node | None
    generation: int
    children: dict[Key, Node] = field(default_factory=dict)
    users: int = 0
    """Leases that hold it."""


@dataclass(slots=True, eq=False)
class Lease:
    """The pages of the cache that one sequence holds: those of its first tokens, in order."""

    nodes: list[Node] = field(default_factory=list)

    @property
    def pages(self) -> list[int]:
        """Return the pool pages."""
        return [node.page for node in self.nodes]

    @property
    def tokens(self) -> int:
        """Return how many tokens they hold."""
        return sum(len(node.key) for node in self.nodes)

    def own(self, pages: Sequence[int]) -> list[int]:
        """Return those of the sequence's `pages` that are not the cache's.

        They differ from the lease where two sequences have computed the same: the cache keeps one of the two.
        """
        held = len(self.nodes)
        return [page for at, page in enumerate(pages) if at >= held or self.nodes[at].page != page]


class PrefixCache:
    """Owner of the pages that outlive their sequence. With `enabled` False it stays empty."""

    def __init__(self, page_size: int, ledger: PageLedger, enabled: bool = True) -> None:
        self.enabled = enabled
        self.asked_tokens = 0
        """Prompt tokens that were looked up, and how many of them were here; for the metrics."""
        self.hit_tokens = 0
        self.evicted_pages = 0
        self._size = page_size
        self._ledger = ledger
        self._generation = 0
        self._root = Node(-1, (), None, 0)
        self._idle: OrderedDict[Node, None] = OrderedDict()
        """Pages without a user, the least recently used first."""

    @property
    def available(self) -> int:
        """Pages that `take` can hand out: the free ones and those that can be evicted."""
        return self._ledger.free_count + len(self._idle)

    def length(self, tokens: Sequence[int], limit: int) -> int:
        """Return how many of the first `limit` tokens are here, in whole pages; pins nothing."""
        return len(self._path(tokens, limit)) * self._size

    def match(self, tokens: Sequence[int], limit: int) -> Lease:
        """Pin what is here of the first `limit` tokens. Costs about 1 us a page found."""
        lease = Lease()
        self._pin(lease, self._path(tokens, limit))
        return lease

    def note(self, asked_tokens: int, hit_tokens: int) -> None:
        """Count a look-up that led to something (a queue's head is looked up again each turn)."""
        self.asked_tokens += asked_tokens
        self.hit_tokens += hit_tokens

    def extend(self, lease: Lease, tokens: Sequence[int], right: int, pages: Sequence[int]) -> None:
        """Take over the sequence's whole pages among its first `right` tokens; the lease holds them from now on.

        The caller vouches for them: computed here, or landed. Where the cache has a page of the same tokens already,
        the lease ends: to pin that one beside the sequence's own would take two pages for one, and a sequence that
        needs the whole pool could never finish.
        """
        self._extend(lease, tokens, right, pages, past_twins=False)

    def _extend(
        self, lease: Lease, tokens: Sequence[int], right: int, pages: Sequence[int], *, past_twins: bool
    ) -> None:
        if not self.enabled or (lease.nodes and lease.nodes[-1].generation != self._generation):
            return
        parent = lease.nodes[-1] if lease.nodes else self._root
        path = []
        adopted = []
        for at in range(len(lease.nodes), right // self._size):
            key = tuple(tokens[at * self._size : (at + 1) * self._size])
            node = parent.children.get(key)
            if node is None:
                node = parent.children[key] = Node(pages[at], key, parent, self._generation)
                adopted.append(node.page)
            elif node.page != pages[at] and not past_twins:
                break
            path.append(node)
            parent = node
        self._ledger.move(adopted, Owner.PINNED)
        self._pin(lease, path)

    def give_back(self, lease: Lease, tokens: Sequence[int], right: int, pages: Sequence[int]) -> None:
        """End a sequence: keep its whole pages among the first `right` tokens, free its others, unpin."""
        self._extend(lease, tokens, right, pages, past_twins=True)
        self._ledger.free(lease.own(pages))
        self.release(lease)

    def release(self, lease: Lease) -> None:
        """Unpin the pages of a lease; it is empty afterwards."""
        unused = []
        for node in reversed(lease.nodes):
            node.users -= 1
            if node.users == 0:
                unused.append(node)
        lease.nodes = []
        self._ledger.move([node.page for node in unused], Owner.CACHED)
        current = [node for node in unused if node.generation == self._generation]
        self._idle.update(dict.fromkeys(current))
        self._ledger.free([node.page for node in unused if node.generation != self._generation])

    def take(self, count: int, owner: Owner, after: int | None = None) -> list[int] | None:
        """Take pages as `PageLedger.take` does, giving up the least recently used of the cache where it must."""
        missing = count - self._ledger.free_count
        if missing > len(self._idle):
            return None
        self._evict(missing)
        return self._ledger.take(count, owner, after)

    def drop(self) -> None:
        """Forget everything, because some page may be wrong; pages in use are freed by their last user."""
        self._ledger.free([node.page for node in self._idle])
        self._idle.clear()
        self._generation += 1
        self._root = Node(-1, (), None, self._generation)

    def _path(self, tokens: Sequence[int], limit: int) -> list[Node]:
        path = []
        node = self._root
        for start in range(0, limit - self._size + 1, self._size):
            found = node.children.get(tuple(tokens[start : start + self._size]))
            if found is None:
                break
            path.append(found)
            node = found
        return path

    def _pin(self, lease: Lease, path: list[Node]) -> None:
        woken = []
        for node in path:
            if node in self._idle:
                del self._idle[node]
                woken.append(node.page)
            node.users += 1
        self._ledger.move(woken, Owner.PINNED)
        lease.nodes += path

    def _evict(self, count: int) -> None:
        pages = []
        for _ in range(count):
            node, _ = self._idle.popitem(last=False)
            assert node.parent is not None
            assert not node.children
            del node.parent.children[node.key]
            pages.append(node.page)
        self._ledger.free(pages)
        self.evicted_pages += len(pages)
