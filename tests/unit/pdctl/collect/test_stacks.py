"""py-spy reads a real process; a wrapper makes it fail in the ways that a busy machine makes it fail."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pdctl.collect import stacks
from pdctl.collect.context import Context, Deadline
from pdctl.collect.fetch import Fetcher
from pdctl.collect.records import Status, Taken
from pdctl.collect.target import Target
from pdctl.deployment.model import Instance, Role

IN_MOTION = "Error: Failed to get stack traces\n\nCaused by:\n    0: Failed to copy PyCodeObject"


@pytest.fixture
def asleep() -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that prints once it runs."""
    with subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(1000)"], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child
        child.kill()


def install(folder: Path, failures: int, message: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a py-spy before the real one that fails so often first; return the file that counts its runs."""
    runs, real = folder / "runs", stacks.find_pyspy()
    wrapper = folder / "py-spy"
    wrapper.write_text(
        f"""#!/bin/sh
echo >> "{runs}"
if [ "$(wc -l < "{runs}")" -le {failures} ]; then echo "{message}" >&2; exit 1; fi
exec "{real}" "$@"
"""
    )
    wrapper.chmod(0o755)
    monkeypatch.setattr(stacks, "find_pyspy", lambda: str(wrapper))
    return runs


def dumped(pid: int) -> Taken:
    """Return what is taken of the process."""
    decode = Instance(name="decode-0", role=Role.DECODE, dialect="pdctl", url="http://127.0.0.1:1")

    async def once() -> list[Taken]:
        return await stacks.take(
            Target(instance=decode, pid=pid), Context(fetcher=Fetcher(), deadline=Deadline(30)), "stacks.json"
        )

    (taken,) = asyncio.run(once())
    return taken


def test_a_read_caught_in_motion_is_made_again(
    asleep: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stacks are there after three such failures, as if nothing had happened."""
    install(tmp_path, 3, IN_MOTION, monkeypatch)
    taken = dumped(asleep.pid)
    assert (taken.status, taken.error) == (Status.OK, None)
    assert [thread["pid"] for thread in msgspec.json.decode(taken.content or b"")] == [asleep.pid]


def test_a_process_that_is_always_in_motion_is_named(
    asleep: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After four reads it is told as failed, with what py-spy said."""
    runs = install(tmp_path, 1000, IN_MOTION, monkeypatch)
    taken = dumped(asleep.pid)
    assert taken.status is Status.FAILED
    assert f"pid {asleep.pid}" in (taken.error or "")
    assert len(runs.read_text().splitlines()) == stacks.NONBLOCKING_READS


def test_another_failure_is_told_at_once(
    asleep: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another read would not change is not tried again."""
    runs = install(tmp_path, 1000, "Error: Permission denied (os error 1)", monkeypatch)
    assert dumped(asleep.pid).status is Status.DENIED
    assert len(runs.read_text().splitlines()) == 1
