"""Run a command that may hang: a process group of its own, a deadline that kills it, output of bounded size."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

STDERR_MOST_BYTES = 64 << 10
CHUNK_BYTES = 256 << 10
AFTER_KILL_S = 0.5


class End(StrEnum):
    """How a child ended."""

    EXITED = "exited"
    TIMEOUT = "timeout"
    TOO_LARGE = "too_large"
    """It wrote more than was asked for and was killed."""
    MISSING = "missing"
    """There is no such program."""
    NOT_STARTED = "not_started"
    UNREACHABLE = "unreachable"
    """Its host could not be asked; `stderr` says why and what to do."""


class Keep(StrEnum):
    """Which end of too large an output is kept."""

    HEAD = "head"
    """Kill the child once there is enough."""
    TAIL = "tail"
    """Read on to the end, in flat memory."""


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """What a child did."""

    argv: tuple[str, ...]
    end: End
    code: int | None = None
    stdout: bytes = b""
    stderr: str = ""
    took_ms: float = 0.0
    truncated: bool = False
    where: str = "here"
    """In words: `here`, or `on ssh:gpu7`."""
    survivor: int | None = None
    """Pid of a child that outlived SIGKILL (D state); it was left behind."""

    @property
    def ok(self) -> bool:
        """Return whether it ran to its end and said so."""
        return self.end is End.EXITED and self.code == 0

    def describe(self) -> str:
        """Return what happened in a few words, with its last words."""
        if self.end is End.UNREACHABLE:
            return self.stderr
        if self.end is End.MISSING:
            return f"{self.argv[0]} is not installed {self.where}"
        words = (self.stderr.strip().splitlines() or [""])[-1][:300]
        tail = f": {words}" if words else ""
        what = {
            End.EXITED: f"ended with {self.code}",
            End.TIMEOUT: f"was killed after {self.took_ms / 1000:.1f} s without an end",
            End.TOO_LARGE: f"was killed after {len(self.stdout)} bytes of output",
            End.NOT_STARTED: "could not be started",
        }[self.end]
        left = f"; pid {self.survivor} outlived SIGKILL and was left behind" if self.survivor else ""
        return f"{os.path.basename(self.argv[0])} {what}{tail}{left}"  # noqa: PTH119 - argv[0] may be a bare word


async def run(
    argv: Sequence[str],
    *,
    deadline_s: float,
    most_bytes: int,
    keep: Keep = Keep.HEAD,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
) -> Child:
    """Run to the end or the deadline. Nothing of its process group is left, also when this task is cancelled."""
    started = time.monotonic()
    try:
        process = await _spawned(argv, bool(stdin), env)
    except FileNotFoundError as error:
        return Child(argv=tuple(argv), end=End.MISSING, stderr=str(error))
    except OSError as error:
        return Child(argv=tuple(argv), end=End.NOT_STARTED, stderr=str(error))
    out, err = _Bounded(most_bytes, keep), _Bounded(STDERR_MOST_BYTES, Keep.TAIL)
    end = End.EXITED
    survivor = None
    try:
        async with asyncio.timeout(deadline_s):
            await _converse(process, stdin, out, err)
            if out.is_full:
                end = End.TOO_LARGE
            else:
                await process.wait()
    except TimeoutError:
        end = End.TIMEOUT
    finally:
        survivor = await _end_group(process)
    return Child(
        argv=tuple(argv),
        end=end,
        code=process.returncode if end is End.EXITED else None,
        stdout=bytes(out.data),
        stderr=err.data.decode("utf-8", "replace"),
        took_ms=round((time.monotonic() - started) * 1000, 1),
        truncated=out.was_cut or end is not End.EXITED,
        survivor=survivor,
    )


async def _spawned(argv: Sequence[str], has_stdin: bool, env: Mapping[str, str] | None) -> asyncio.subprocess.Process:
    spawning = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE if has_stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(env) if env is not None else None,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(spawning)
    except asyncio.CancelledError:
        # Cancelled in the middle of a spawn, asyncio kills the child alone and waits for whatever holds its pipes.
        await _end_group(await spawning)
        raise


class _Bounded:
    """At most so many bytes of a stream."""

    def __init__(self, most_bytes: int, keep: Keep) -> None:
        self.data = bytearray()
        self.was_cut = False
        self._most = most_bytes
        self._keep = keep

    @property
    def is_full(self) -> bool:
        return self._keep is Keep.HEAD and self.was_cut

    async def read(self, stream: asyncio.StreamReader) -> None:
        while not self.is_full and (chunk := await stream.read(CHUNK_BYTES)):
            self.data += chunk
            self._cut()

    def _cut(self) -> None:
        # The tail is cut in large steps: removing a few bytes at a time from the front would copy it each time.
        if len(self.data) <= self._most * (1 if self._keep is Keep.HEAD else 2):
            return
        self.was_cut = True
        if self._keep is Keep.HEAD:
            del self.data[self._most :]
        else:
            del self.data[: -self._most]


async def _converse(process: asyncio.subprocess.Process, stdin: bytes, out: _Bounded, err: _Bounded) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.ensure_future(err.read(process.stderr))
    try:
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(stdin)
                await process.stdin.drain()
            process.stdin.close()
        await out.read(process.stdout)
        if not out.is_full:
            await errors
    finally:
        errors.cancel()


async def _end_group(process: asyncio.subprocess.Process) -> int | None:
    """Kill what is left of the group; return the pid of a child that not even SIGKILL ends in time."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(process.wait()), AFTER_KILL_S)
    survivor = process.pid if process.returncode is None else None
    transport = getattr(process, "_transport", None)
    if transport is not None:
        # A grandchild that left the group may hold the pipes; without this they would stay open.
        transport.close()
    return survivor
