"""What the engine benchmark makes of the times that it measured."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from benchmarks.engine import turn
from benchmarks.load import OtherLoad


def load() -> OtherLoad:
    """Return a load of which nothing was measured."""
    return OtherLoad([])


def test_decoding_is_measured_while_all_decode() -> None:
    """Two requests: from 2.0, when the second has its first token, to 4.0, when the first ends, come 2 + 3 tokens."""
    found = turn([[1.0, 2.0, 3.0, 4.0], [2.0, 2.5, 3.0, 4.0]], tokens=4, load=load())
    assert found.decode_rate == pytest.approx(5 / 2)
    assert found.token_s == pytest.approx(2 / found.decode_rate)
    assert found.first_token_s == 1.5
    assert found.whole_rate == pytest.approx(8 / 4)


def test_an_event_with_several_tokens_counts_as_these() -> None:
    """A stream that sends two tokens at a time is as fast as one that sends each."""
    each = turn([[1.0, 1.5, 2.0, 2.5, 3.0]], tokens=5, load=load())
    pairs = turn([[1.0, 2.0, 3.0]], tokens=5, load=load())
    assert pairs.decode_rate == pytest.approx(each.decode_rate)


def test_work_of_others_is_told_from_that_of_the_measured() -> None:
    """A child that is busy for a second of CPU time is its own load when it is measured, and another's when not."""
    code = "import time\nwhile time.process_time() < 1: pass\nprint(flush=True)\ninput()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    with OtherLoad([psutil.Process(child.pid)]) as own, OtherLoad([]) as foreign:
        started = time.perf_counter()
        child.stdout.readline()
        took = time.perf_counter() - started
    child.communicate(b"\n")
    assert own.own_s > 0.9
    assert foreign.own_s < 0.5
    assert foreign.cores * took > 0.9
