"""`pdctl watch` as a user calls it, on stand-in engines."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import termios
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cli import pdctl_process
from tests.cli.standin_deployment import Standins, standins_in
from tests.ports import free_port
from tests.waiting import eventually


@pytest.fixture(scope="module")
def standins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standins]:
    """Stand-ins that run."""
    for deployment in standins_in(tmp_path_factory.mktemp("watched")):
        deployment.up()
        yield deployment


def test_json_gives_one_line_a_look(standins: Standins) -> None:
    """--count looks, exit 0; the second has an interval."""
    done = standins.run("watch", "-n", "2", "--interval", "0.5", "-o", "json")
    assert done.returncode == 0, done.stderr
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert [one["name"] for one in first["instances"]] == ["prefill-0", "decode-0", "router"]
    assert first["window_s"] is None
    assert second["window_s"] > 0.4


def test_a_pipe_gets_tables_without_colours(standins: Standins) -> None:
    """One below the other, so that a log of them can be read."""
    done = standins.run("watch", "-n", "2", "--interval", "0.5", NO_COLOR="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("INSTANCE") == 2
    assert "\x1b" not in done.stdout


def test_ctrl_c_on_a_terminal_is_no_failure_and_leaves_it_clean(standins: Standins) -> None:
    """Exit 0, the cursor is shown again, no traceback."""
    outside, inside = pty.openpty()
    watching = subprocess.Popen(
        [*pdctl_process.COMMAND, "watch", "--interval", "0.5"],
        cwd=standins.home,
        env=pdctl_process.environment(
            standins.home, PYTHONPATH=str(Path(__file__).parents[2]), TERM="xterm", COLUMNS="80"
        ),
        stdout=inside,
        stderr=inside,
    )
    os.close(inside)
    seen = b""
    while seen.count(b"INSTANCE") < 2:
        seen += os.read(outside, 4096)
    watching.send_signal(signal.SIGINT)
    seen += _rest(outside)
    assert watching.wait(20) == 0
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"INSTANCE")
    assert b"Traceback" not in seen


def test_ctrl_c_in_the_middle_of_a_look_leaves_no_process(standins: Standins) -> None:
    """The key itself, on a real terminal, while a stopped engine is waited for and its processes are looked at."""
    decode = standins.pids()["decode-0"]
    assert decode is not None
    outside, inside = pty.openpty()
    os.kill(decode, signal.SIGSTOP)
    try:
        watching = subprocess.Popen(
            [*pdctl_process.COMMAND, "watch", "--interval", "0.5"],
            cwd=standins.home,
            env=pdctl_process.environment(standins.home, PYTHONPATH=str(Path(__file__).parents[2]), TERM="xterm"),
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(inside)
        seen = b""
        while b"stopped" not in seen:
            seen += os.read(outside, 4096)
        children = eventually(psutil.Process(watching.pid).children)
        os.write(outside, b"\x03")
        seen += _rest(outside)
        assert watching.wait(20) == 0
    finally:
        os.kill(decode, signal.SIGCONT)
    assert b"Traceback" not in seen
    assert not any(child.is_running() for child in children)


def _rest(terminal: int) -> bytes:
    """Read until the other end is closed."""
    seen = b""
    with contextlib.suppress(OSError):
        while True:
            seen += os.read(terminal, 4096)
    os.close(terminal)
    return seen


def test_the_daemon_answers_metrics_until_sigterm(standins: Standins) -> None:
    """Exit 0; what it cannot probe it says once."""
    port = free_port()
    watching = standins.start("watch", "--daemon", "--listen", f"127.0.0.1:{port}", "--interval", "0.5")
    try:
        assert watching.stderr is not None
        assert "metrics at" in watching.stderr.readline()
        eventually(lambda: 'pdctl_watch_instance_well{deployment="standins",instance="decode-0"' in _metrics(port))
        assert 'pdctl_watch_judgements_total{deployment="standins",verdict="wedged"} 0.0' in _metrics(port)
    finally:
        watching.send_signal(signal.SIGTERM)
        watching.communicate(timeout=20)
    assert watching.returncode == 0


def _metrics(port: int) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def test_a_port_that_another_has_is_wrong_usage(standins: Standins) -> None:
    """With what to do, and before anything is asked."""
    taken = standins.ports["router"]
    done = standins.run("watch", "--daemon", "--listen", f"127.0.0.1:{taken}")
    assert done.returncode == 2
    assert f"--listen 127.0.0.1:{taken}: cannot listen there" in done.stderr


def test_what_went_away_is_gone_in_the_next_look(tmp_path: Path) -> None:
    """The watch goes on: what it looks at may break."""
    [standins] = standins_in(tmp_path)
    watching = standins.start("watch", "--interval", "0.5", "-o", "json")
    try:
        assert watching.stdout is not None
        watching.stdout.readline()
        standins.run("down", "--timeout", "0")
        states = eventually(lambda: _states(watching.stdout.readline(), "gone"))  # type: ignore[union-attr]
        assert states == {"prefill-0": "gone", "decode-0": "gone", "router": "gone"}
    finally:
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=20)
    assert watching.returncode == 0


def _states(line: str, wanted: str) -> dict[str, str] | None:
    states = {one["name"]: one["state"] for one in json.loads(line)["instances"]}
    return states if set(states.values()) == {wanted} else None


@pytest.mark.parametrize("arguments", [("--listen", "127.0.0.1:1"), ("--daemon", "-n", "3"), ("--interval", "0")])
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Exit 2, before anything is looked for."""
    done = pdctl_process.run(tmp_path, "watch", *arguments)
    assert done.returncode == 2
    assert done.stderr


def test_alert_rules_need_no_deployment(tmp_path: Path) -> None:
    """They come from the package."""
    done = pdctl_process.run(tmp_path, "watch", "--print-alerts")
    assert done.returncode == 0
    assert "alert: PDWedged" in done.stdout


def test_nothing_to_watch_is_told(tmp_path: Path) -> None:
    """A name that nobody knows: exit 3."""
    assert pdctl_process.run(tmp_path, "watch", "--name", "nobody", "-n", "1").returncode == 3
