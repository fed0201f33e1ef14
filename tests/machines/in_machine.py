"""A booted system as a Host: every command runs in there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pdctl.hosts.child import Child, Keep
from pdctl.hosts.host import LocalHost
from tests.machines.booted import Booted


class InMachine(LocalHost):
    """Runs a command in a booted system."""

    def __init__(self, machine: Booted) -> None:
        self._machine = machine

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        most_bytes: int,
        keep: Keep = Keep.HEAD,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Child:
        """Run it there."""
        inside = self._machine.argv(*argv)
        return await super().run(inside, deadline_s=deadline_s, most_bytes=most_bytes, keep=keep, stdin=stdin, env=env)
