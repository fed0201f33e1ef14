"""A host on which commands do not run: a test says what comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pdctl.hosts.child import Child
from pdctl.hosts.host import LocalHost


class AnsweringHost(LocalHost):
    """`ssh:gpu7`, as callers without an event loop see it; `asked` are its command lines."""

    name = "ssh:gpu7"

    def __init__(self, answer: Callable[[tuple[str, ...]], Child]) -> None:
        self._answer = answer
        self.asked: list[str] = []

    def run_now(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        most_bytes: int,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Child:
        """Answer at once."""
        self.asked.append(" ".join(argv))
        return self._answer(tuple(argv))
