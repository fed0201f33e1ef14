"""Processes of this host, real ones: tree, states, sockets, titles."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from pdctl.collect import host_processes
from pdctl.collect.host_processes import ProcessRow, parse
from pdctl.collect.processes import unit_facts
from tests.waiting import eventually


def row(*cmdline: str, name: str = "x") -> ProcessRow:
    return ProcessRow(pid=1, ppid=0, name=name, state="S", started_at=0.0, start_ticks=0, cpu_s=0.0, cmdline=cmdline)


def test_a_tree_with_states_start_times_and_children() -> None:
    """A parent, its stopped child and the times they began are read as they are."""
    script = "import subprocess, sys; subprocess.Popen(['sleep', '100']); print('up', flush=True); sys.stdin.read()"
    began = time.time()
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        parent.stdout.readline()
        child = int(Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text())
        os.kill(child, signal.SIGSTOP)
        eventually(lambda: asyncio.run(host_processes.read((parent.pid,), deadline_s=10)).processes[1].state == "T")
        table = asyncio.run(host_processes.read((parent.pid,), deadline_s=10))
        os.kill(child, signal.SIGKILL)
    finally:
        parent.communicate()
    root, sleeper = table.processes
    assert (root.pid, sleeper.pid, sleeper.ppid) == (parent.pid, child, parent.pid)
    assert sleeper.cmdline == ("sleep", "100")
    assert sleeper.state == "T"
    assert root.started_at == pytest.approx(began, abs=3)
    assert (root.tracer_pid, len(root.threads)) == (0, 1)


@pytest.mark.parametrize(
    ("states", "is_stopped"), [("TT", True), ("TZ", True), ("TS", False), ("ST", False), ("ZZ", False), ("t", False)]
)
def test_a_tree_is_stopped_when_a_signal_holds_all_of_it(states: str, is_stopped: bool) -> None:
    """Each a child of the one before; a dead child holds nobody up, a tracer is no signal."""
    rows = tuple(
        msgspec.structs.replace(row("x"), pid=10 + at, ppid=9 + at, state=state) for at, state in enumerate(states)
    )
    assert host_processes.Table(processes=rows).is_stopped(10) is is_stopped
    assert not host_processes.Table(processes=rows).is_stopped(None)


def test_sockets_with_what_waits_in_them() -> None:
    """Unread bytes in a connection of ours show in its receive queue."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            client.sendall(b"x" * 321)
            port = client.getsockname()[1]

            def waiting() -> list[int]:
                table = asyncio.run(host_processes.read((os.getpid(),), deadline_s=10))
                ours = [item for item in table.sockets if item.remote == f"127.0.0.1:{port}"]
                return [item.receive_queue_bytes for item in ours if item.state == "established"]

            assert eventually(waiting) == [321]


def test_listening_ports_of_every_process() -> None:
    """The survey tells which process listens where."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        table = asyncio.run(host_processes.read(deadline_s=10))
    assert [item.pid for item in table.processes if port in item.listening] == [os.getpid()]


def test_half_a_table_is_a_table() -> None:
    """A child that was killed in the middle of a line leaves the lines before."""
    line = b'{"kind":"process","pid":7,"ppid":1,"name":"a","state":"S","started_at":1,"start_ticks":1,"cpu_s":0}\n'
    assert [item.pid for item in parse(line + line[:40]).processes] == [7]


@pytest.mark.parametrize(
    ("cmdline", "title", "rank"),
    [
        (("sglang::scheduler_DP1_TP3_EP3",), "sglang::scheduler_DP1_TP3_EP3", "DP1 TP3 EP3"),
        (("sglang::scheduler",), "sglang::scheduler", "TP0"),
        (("sglang::detokenizer",), "sglang::detokenizer", ""),
        (("VLLM::Worker_TP1",), "VLLM::Worker_TP1", "TP1"),
        (("/v/bin/python", "-m", "engine.scheduler", "--run-dir", "/x"), "python -m engine.scheduler", "TP0"),
        (("python3", "-m", "sglang.launch_server", "--port", "1"), "python3 -m sglang.launch_server", ""),
        (("/usr/bin/python3", "/usr/local/bin/vllm", "serve", "m"), "python3 vllm serve", ""),
    ],
)
def test_titles_and_ranks(cmdline: tuple[str, ...], title: str, rank: str) -> None:
    """A process is called what people call it, and its rank is read from there."""
    assert (row(*cmdline).title, row(*cmdline).rank) == (title, rank)


def test_systemd_facts_that_are_not_set_are_unknown() -> None:
    """`[not set]` and empty values are left out; numbers and yes/no are typed."""
    shown = "ActiveState=failed\nResult=exit-code\nNRestarts=3\nInvocationID=\nNeedDaemonReload=no\n"
    shown += "ExecMainStatus=[not set]\n"
    assert unit_facts("pd@p0.service", shown) == {
        "manager": "systemd",
        "unit": "pd@p0.service",
        "active_state": "failed",
        "result": "exit-code",
        "restarts": 3,
        "need_daemon_reload": False,
    }


def test_the_status_port_of_a_dynamo_worker_is_read_from_its_environment() -> None:
    """No flag tells it; of all other processes the environment is not even opened."""
    script = "import sys; print(flush=True); sys.stdin.read()"
    environment = {"DYN_SYSTEM_PORT": "18011"}
    worker, other = (
        subprocess.Popen(
            [sys.executable, "-c", script, word], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        for word in ("dynamo.mocker", "something")
    )
    try:
        for process in (worker, other):
            assert process.stdout is not None
            process.stdout.readline()
        table = asyncio.run(host_processes.read(deadline_s=10))
    finally:
        worker.communicate()
        other.communicate()
    seen = {row.pid: row.status_port for row in table.processes}
    assert (seen[worker.pid], seen[other.pid]) == (18011, None)
