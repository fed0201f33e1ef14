"""The status table."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from pdctl.deployment.overview import InstanceStatus, Overview
from pdctl.render import status

WELL = InstanceStatus(
    name="prefill-0",
    role="prefill",
    url="http://127.0.0.1:30000",
    is_well=True,
    process="running",
    pid=4242,
    age_s=3725.0,
    health="ok",
    health_ms=3.0,
    running=1,
    waiting=7,
    oldest_s=83.0,
)
DEAD = InstanceStatus(
    name="decode-0",
    role="decode",
    url="http://127.0.0.1:30002",
    is_well=False,
    process="killed by SIGKILL",
    health="refused",
    health_ms=1.0,
)


def drawn(width: int, *rows: InstanceStatus) -> str:
    overview = Overview(deployment="d", model="m", is_well=False, instances=rows)
    console = Console(file=io.StringIO(), width=width)
    console.print(status.as_table(overview))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0.0s"),
        (9.94, "9.9s"),
        (59.9, "59s"),
        (60.0, "1m 0s"),
        (192.0, "3m 12s"),
        (3600.0, "1h 0m"),
        (86399.0, "23h 59m"),
        (187200.0, "2d 4h"),
    ],
)
def test_age(seconds: float | None, text: str) -> None:
    """The two largest units; unknown is a dash."""
    assert status.age(seconds) == text


def test_row_shows_process_queues_and_oldest_age() -> None:
    """One line an instance."""
    line = drawn(100, WELL).splitlines()[1].split()
    assert line == ["prefill-0", "prefill", "4242", "1h", "2m", "ok", "1", "7", "1m", "23s"]


def test_dead_instance_says_how_it_died() -> None:
    """More useful than `refused`; unknown queues are dashes."""
    line = drawn(100, DEAD).splitlines()[1]
    assert line.split() == ["decode-0", "decode", "-", "-", "killed", "by", "SIGKILL", "-", "-", "-"]


def test_narrow_terminal_keeps_everything() -> None:
    """Words wrap; no name, pid or number is cut."""
    text = drawn(60, WELL, DEAD)
    for word in ("prefill-0", "4242", "decode-0", "killed", "SIGKILL", "1m 23s"):
        assert word in text
    assert max(len(line) for line in text.splitlines()) <= 60


def test_no_colour_without_a_terminal() -> None:
    """A file gets plain text."""
    assert "\x1b" not in drawn(100, WELL, DEAD)
