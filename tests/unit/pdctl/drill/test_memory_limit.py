"""A real limit of a real control group, where this user may make one."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.drill.memory_limit import MemoryLimit, name_of
from pdctl.errors import PdctlError

LIMIT_BYTES = 64 << 20
HUNGRY = "input(); held = [bytearray(1 << 20) for _ in range(256)]; print('fed')"


@pytest.fixture
def limit() -> Iterator[MemoryLimit]:
    """A group that allows 64 MB; without the right to make one, the test has nothing to show."""
    try:
        made = MemoryLimit(name_of("test"), LIMIT_BYTES)
    except PdctlError as error:
        pytest.skip(f"no control group can be made here: {error.message}")
    yield made
    made.remove()


def hungry() -> subprocess.Popen[str]:
    """Start a process that takes 256 MB once it is told."""
    return subprocess.Popen([sys.executable, "-c", HUNGRY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_what_takes_more_is_killed(limit: MemoryLimit) -> None:
    """By the kernel, with SIGKILL."""
    process = hungry()
    limit.take([process.pid])
    process.communicate("go\n", timeout=60)
    assert process.returncode == -signal.SIGKILL


def test_who_was_let_go_may_take_what_it_likes(limit: MemoryLimit) -> None:
    """Removed while a process lives in it: the process goes on without the limit. Twice does no harm."""
    process = hungry()
    limit.take([process.pid])
    limit.remove()
    limit.remove()
    assert process.communicate("go\n", timeout=60)[0] == "fed\n"


def test_a_machine_without_control_groups(tmp_path: Path) -> None:
    """One message that says what is needed."""
    with pytest.raises(PdctlError, match="cannot limit memory"):
        MemoryLimit("x", LIMIT_BYTES, tmp_path / "missing")
