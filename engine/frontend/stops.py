"""Stop strings, found in text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Hands on text up to the first stop string, holding back what may be the beginning of one.

    The first stop string is the one whose last character comes first (of two that end together, the longer):
    so the answer is the same however the text is cut into pieces.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """Return the text that can be shown now; nothing more follows once `matched` is set."""
        if not self._stops or self.matched is not None:
            return "" if self.matched is not None else text
        self._held += text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            _, at, self.matched = min(found)
            return self._release(at)
        return self._release(len(self._held) - self._prefix_length())

    def flush(self) -> str:
        """Return what was held back, because no more text will come."""
        return "" if self.matched is not None else self._release(len(self._held))

    def _release(self, length: int) -> str:
        shown, self._held = self._held[:length], self._held[length:]
        return shown

    def _prefix_length(self) -> int:
        """Return the length of the longest end of the held text that begins some stop string."""
        longest = min(len(self._held), max(map(len, self._stops)) - 1)
        for length in range(longest, 0, -1):
            tail = self._held[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
