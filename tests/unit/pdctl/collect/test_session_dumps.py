"""Stacks beside the samples of a collection: of a process that really runs, by py-spy."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.collect import session
from pdctl.collect.session import Collector
from pdctl.evidence.directory import read_directory
from tests.fakes.bad_http import BadServer, not_found
from tests.unit.pdctl.collect.test_session import METRICS, PRINTS, deployment
from tests.waiting import eventually


@contextlib.contextmanager
def one_process(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Yield a process that serves the file `body` as its metrics, and its URL."""
    (folder / "body").write_bytes(METRICS % 1)
    with subprocess.Popen([sys.executable, "-c", PRINTS, str(folder / "body"), str(folder / "port")]) as process:
        try:
            eventually((folder / "port").exists)
            yield process, f"http://127.0.0.1:{(folder / 'port').read_text()}"
        finally:
            process.kill()


def assert_dumped_alone(folder: Path, collector: Collector) -> None:
    """Two dumps of the one process that serves, and of no other."""
    assert collector.dumped == {"prefill-0"}
    for name in ("stacks.prev.json", "stacks.json"):
        assert b"serve_forever" in (folder / "incident" / "prefill-0" / name).read_bytes()


def test_dumps_that_are_added_leave_the_samples_as_they_were_judged(tmp_path: Path) -> None:
    """In a sample of later what decided may be over: the folder would not say any more why a restart was right."""
    with one_process(tmp_path) as (_, url):
        collector = Collector(deployment(url), tmp_path / "incident")
        collector.take(interval_s=0.1, timeout_s=10)
        judged = read_directory(tmp_path / "incident")
        (tmp_path / "body").write_bytes(METRICS % 2)
        collector.dump(("prefill-0",), timeout_s=20)
    later = read_directory(tmp_path / "incident")
    assert (later.captured_at, later.instances[0].metrics) == (judged.captured_at, judged.instances[0].metrics)
    assert_dumped_alone(tmp_path, collector)


def test_what_a_signal_holds_is_not_waited_for_and_its_stacks_are_taken_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process answers nothing: its records say timeout long before a busy one's time is over.

    Two dumps of it, beside the samples, and none of who runs.
    """
    monkeypatch.setattr(session, "GET_S", 100.0)
    with one_process(tmp_path) as (process, url):
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        with BadServer({}, not_found) as server:
            collector = Collector(deployment(url, server.url), tmp_path / "incident")
            summary = collector.take(interval_s=0.1, timeout_s=100, dumps_stopped=True)
    assert summary.took_s < 40
    stopped, running = read_directory(tmp_path / "incident").instances
    assert {get.error for get in stopped.gets} == {"timeout"}
    assert [row.state for row in stopped.processes] == ["T"]
    assert {get.status for get in running.gets} == {404}
    assert_dumped_alone(tmp_path, collector)
