"""Real limits of real control groups, where this user may make one."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pdctl.drill.control_group import ROOT, ControlGroup, name_of
from pdctl.errors import PdctlError
from tests.waiting import eventually

LIMIT_BYTES = 64 << 20
HUNGRY = "input(); held = [bytearray(1 << 20) for _ in range(256)]; print('fed')"
BUSY = "while True: pass"
CORES = 0.2


def made(group: Callable[[], ControlGroup]) -> Iterator[ControlGroup]:
    """Yield a group; without the right to make one, the test has nothing to show."""
    try:
        one = group()
    except PdctlError as error:
        pytest.skip(f"no control group can be made here: {error.message}")
    yield one
    one.remove()


@pytest.fixture
def little_memory() -> Iterator[ControlGroup]:
    """A group that allows 64 MB."""
    yield from made(lambda: ControlGroup.of_memory(name_of("test"), LIMIT_BYTES))


@pytest.fixture
def little_cpu() -> Iterator[ControlGroup]:
    """A group that allows a fifth of a core."""
    yield from made(lambda: ControlGroup.of_cpu(name_of("test"), CORES))


def hungry() -> subprocess.Popen[str]:
    """Start a process that takes 256 MB once it is told."""
    return subprocess.Popen([sys.executable, "-c", HUNGRY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_what_takes_more_memory_is_killed(little_memory: ControlGroup) -> None:
    """By the kernel, with SIGKILL."""
    process = hungry()
    little_memory.take([process.pid])
    process.communicate("go\n", timeout=60)
    assert process.returncode == -signal.SIGKILL


def test_who_was_let_go_may_take_what_it_likes(little_memory: ControlGroup) -> None:
    """Removed while a process lives in it: the process goes on without the limit. Twice does no harm."""
    process = hungry()
    little_memory.take([process.pid])
    little_memory.remove()
    little_memory.remove()
    assert process.communicate("go\n", timeout=60)[0] == "fed\n"


def times_held_back() -> int:
    """Return in how many periods somebody in the group had used up its share."""
    hierarchy = ROOT / "cpu" if (ROOT / "cpu").is_dir() else ROOT
    rows = dict(line.split() for line in (hierarchy / name_of("test") / "cpu.stat").read_text().splitlines())
    return int(rows["nr_throttled"])


def test_who_has_used_up_its_share_of_a_core_waits(little_cpu: ControlGroup) -> None:
    """The kernel counts how often it held back a loop that never rests: it got no more than its fifth until then."""
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        little_cpu.take([process.pid])
        seen = psutil.Process(process.pid)
        before, began = seen.cpu_times().user, time.monotonic()
        eventually(lambda: times_held_back() >= 10)
        assert seen.cpu_times().user - before <= CORES * (time.monotonic() - began) + 0.1
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("controller", ["memory", "cpu"])
def test_a_machine_without_control_groups(tmp_path: Path, controller: str) -> None:
    """One message that says what is needed."""
    root = tmp_path / "missing"
    with pytest.raises(PdctlError, match=f"cannot limit {controller}"):
        ControlGroup.of_memory("x", LIMIT_BYTES, root) if controller == "memory" else ControlGroup.of_cpu("x", 1, root)
