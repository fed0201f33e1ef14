"""Which of the processes of one host serve together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def connected(items: Sequence[Item], links: Sequence[Iterable[Hashable]]) -> list[list[Item]]:
    """Return groups of items that share a link, directly or through others, in the order given."""
    group_of: dict[Hashable, int] = {}
    groups: dict[int, list[int]] = {}
    for at, tokens in enumerate(links):
        touched = sorted({group_of[token] for token in tokens if token in group_of})
        home = touched[0] if touched else at
        groups.setdefault(home, []).append(at)
        for other in touched[1:]:
            groups[home] += groups.pop(other)
            group_of = {token: home if group == other else group for token, group in group_of.items()}
        group_of |= dict.fromkeys(tokens, home)
    return [[items[at] for at in sorted(members)] for members in groups.values()]
