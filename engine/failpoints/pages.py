"""What happens to pages: some never come back, some are never given."""

from __future__ import annotations

from engine.config import Role
from engine.failpoints.parts import Failpoint, Parts, Patches
from engine.kvcache.pages import Owner
from engine.kvcache.prefix_cache import Lease
from engine.scheduler.sequence import Sequence


def _leak(parts: Parts, patches: Patches) -> None:
    release = parts.book.release

    def release_all_but_pages(sequence: Sequence, result: str, reason: str | None = None) -> None:
        if reason is not None:
            sequence.pages, sequence.lease, sequence.computed = [], Lease(), 0
        release(sequence, result, reason)

    patches.replace(parts.book, "release", release_all_but_pages)


def _starved(parts: Parts, patches: Patches) -> None:
    take_for = parts.planner.take_for
    first: list[Sequence] = []

    def take_for_nobody_while_the_first_waits(sequence: Sequence, owner: Owner) -> bool:
        if owner is not Owner.READING:
            return take_for(sequence, owner)
        if not first:
            first.append(sequence)
        # Nor to one that came before it and was ready after it: that one stands before it in the queue.
        return first[0].rid not in parts.book.queues and take_for(sequence, owner)

    patches.replace(parts.planner, "take_for", take_for_nobody_while_the_first_waits)


POINTS = (
    Failpoint(
        "leak",
        (Role.PREFILL, Role.DECODE),
        "the pages of requests that fail are never freed",
        "nothing: no defence would heal it",
        _leak,
    ),
    Failpoint(
        "starved",
        (Role.DECODE,),
        "the next room is taken for one that is longer than the pool, and all others wait behind it",
        "the check that refuses what can never fit",
        _starved,
    ),
)
