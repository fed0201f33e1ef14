"""Growth is told from what comes and goes: each kind of leak on a real process, and none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.footprint import Footprint, Life, Lives
from tests.serving.rig import Pair, Process

LEAKS = """
import mmap, os, subprocess, sys, threading
kept = []
print(flush=True)
for line in sys.stdin:
    match line.strip():
        case "descriptors":
            kept.append(os.dup(0))
        case "threads":
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        case "children":
            kept.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE))
        case "rss_mb":
            kept.append(b"x" * 2_000_000)
    print(flush=True)
"""


class Leaking(Process):
    """A process that leaks what it is told to."""

    def leak(self, what: str) -> None:
        assert self.child is not None
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(what.encode() + b"\n")
        self.child.stdin.flush()
        self.child.stdout.readline()


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Leaking]:
    made = Leaking("leaking", [], "", tmp_path / "log")
    made.child = subprocess.Popen([sys.executable, "-c", LEAKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with made.child as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield made
        assert child.stdin is not None
        child.stdin.close()


@pytest.mark.parametrize(
    ("what", "times"), [("descriptors", 30), ("threads", 30), ("children", 1), ("rss_mb", 30), ("nothing", 30)]
)
def test_what_is_left_behind_by_every_event_has_grown(side: Leaking, what: str, times: int) -> None:
    """One descriptor, thread or child, or 2 MB, for each of thirty events; of children a single one is too many."""
    first = Footprint.of(side)
    for _ in range(times):
        side.leak(what)
    life = Life("decode", first, Footprint.of(side), events=30)
    assert life.grown == ([] if what == "nothing" else [what])
    assert life.row().endswith(f"| {'none' if what == 'nothing' else what} |")


def test_a_life_is_that_of_one_process(side: Leaking) -> None:
    """Looked at five times (twice at once, as both sides): four outlived. One started after the last event: none."""
    fresh = Process("fresh", [], "", side.log_path)
    fresh.child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    lives = Lives(Pair(side, side, 0))
    lives.note()
    lives.note()
    lives.sides = Pair(fresh, side, 0)
    lives.note()
    with fresh.child as child:
        assert child.stdin is not None
        child.stdin.close()
    assert [(life.side, life.events) for life in lives.outlived()] == [("prefill", 4)]
