"""The seam to a machine: run a command there that may hang, with a deadline and output of bounded size.

Collectors and managers know no other way to the system, so that what works here works on every host. A file is read
by `cat` or `tail`, a program of ours runs by `python3 - < program`: nothing has to be installed there.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from pdctl.hosts import child
from pdctl.hosts.child import Child, Keep

LOCAL = "local"


class Clock(msgspec.Struct, frozen=True):
    """A host's clock: how far ahead of ours, and of UTC its local time is."""

    offset_s: float
    utc_offset_s: float


class Host(Protocol):
    """A machine. `env` is added to the environment there; what goes wrong is in the Child, never raised."""

    @property
    def name(self) -> str:
        """Return it as a deployment file writes it."""
        ...

    @property
    def python(self) -> str:
        """Return the interpreter that runs our programs there: Python 3.8 or later, its standard library."""
        ...

    @property
    def clock(self) -> Clock | None:
        """Return its clock; None where nothing was heard of it yet."""
        ...

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
        """Run to the end or the deadline; nothing of it is left then, also when this task is cancelled."""
        ...

    def run_now(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        most_bytes: int,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Child:
        """Do the same for callers without an event loop."""
        ...


class LocalHost:
    """This machine."""

    name = LOCAL
    python = sys.executable

    @property
    def clock(self) -> Clock:
        """Return our own."""
        return Clock(0.0, float(time.localtime().tm_gmtoff))

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
        """Run it in a process group of its own."""
        whole = {**os.environ, **env} if env is not None else None
        return await child.run(argv, deadline_s=deadline_s, most_bytes=most_bytes, keep=keep, stdin=stdin, env=whole)

    def run_now(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        most_bytes: int,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Child:
        """Run it in an event loop of its own."""
        return asyncio.run(self.run(argv, deadline_s=deadline_s, most_bytes=most_bytes, stdin=stdin, env=env))
