"""Commands that hang, flood, fork or do not exist."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from pdctl.hosts.child import Child, End, Keep, run
from tests.waiting import eventually


def done(*argv: str, deadline_s: float = 10.0, most_bytes: int = 1000, keep: Keep = Keep.HEAD) -> Child:
    return asyncio.run(run(argv, deadline_s=deadline_s, most_bytes=most_bytes, keep=keep))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_output_and_code_of_a_command_that_ends() -> None:
    """stdout, stderr and the exit code are kept apart."""
    child = done("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (child.end, child.code, child.stdout, child.stderr) == (End.EXITED, 3, b"out\n", "err\n")
    assert not child.ok
    assert child.describe() == "sh ended with 3: err"


def test_a_hanging_command_is_killed_with_all_its_children(tmp_path: Path) -> None:
    """At the deadline the whole process group dies, also a grandchild that ignores SIGTERM."""
    pids = tmp_path / "pids"
    script = f"trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >> {pids}; sleep 100' & echo $$ >> {pids}; wait"
    started = time.monotonic()
    child = done("sh", "-c", script, deadline_s=1.0)
    assert child.end is End.TIMEOUT
    assert time.monotonic() - started < 5
    born = [int(word) for word in pids.read_text().split()]
    assert len(born) == 2
    eventually(lambda: not any(is_alive(pid) for pid in born))


def test_a_flood_is_cut_at_its_head() -> None:
    """A child that writes without end is killed as soon as enough of it was read."""
    child = done("yes", most_bytes=5000)
    assert child.end is End.TOO_LARGE
    assert child.truncated
    assert child.stdout == b"y\n" * 2500


def test_the_tail_of_a_long_output_is_kept() -> None:
    """With the tail kept, the last lines are there and the child may finish."""
    child = done("seq", "1", "100000", most_bytes=1000, keep=Keep.TAIL)
    assert child.ok
    assert child.truncated
    assert child.stdout.endswith(b"99999\n100000\n")
    assert len(child.stdout) <= 2000


def test_a_missing_program_is_told_apart() -> None:
    """That there is no such program is no failure of the program."""
    child = done("no-such-program-here")
    assert child.end is End.MISSING
    assert "is not installed here" in child.describe()


def test_cancelling_kills_the_child(tmp_path: Path) -> None:
    """A collection that is given up leaves no child behind."""
    mark = tmp_path / "pid"

    async def cancelled() -> None:
        task = asyncio.ensure_future(run(["sh", "-c", f"echo $$ > {mark}; sleep 100"], deadline_s=60, most_bytes=10))
        while not (mark.exists() and mark.read_text().strip()):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    eventually(lambda: not is_alive(int(mark.read_text())))


def test_a_grandchild_that_holds_the_pipe_does_not_hold_us(tmp_path: Path) -> None:
    """A daemon in a session of its own that keeps stdout open costs no more than the deadline."""
    mark = tmp_path / "pid"
    started = time.monotonic()
    child = done("sh", "-c", f"setsid sleep 20 & echo $! > {mark}; exit 0", deadline_s=1.0)
    took_s = time.monotonic() - started
    os.kill(int(mark.read_text()), 9)
    assert child.end is End.TIMEOUT
    assert took_s < 5
