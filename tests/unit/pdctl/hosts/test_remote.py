"""Commands on a host that `sh` reaches: the ends that a local command has, and those of a connection."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.errors import UsageError
from pdctl.hosts import remote
from pdctl.hosts.child import Child, End, Keep
from pdctl.hosts.hosts import Hosts
from pdctl.hosts.remote import RemoteHost, argv_of
from tests.waiting import eventually


@pytest.fixture
def host() -> Iterator[RemoteHost]:
    """A host with a variable of its own."""
    host = RemoteHost("exec:env PLACE=there")
    yield host
    host.close()


def done(host: RemoteHost, *argv: str, deadline_s: float = 10.0, most_bytes: int = 1000) -> Child:
    """Run a command to its end."""
    return host.run_now(argv, deadline_s=deadline_s, most_bytes=most_bytes)


def is_alive(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_command_runs_there_with_input_variables_and_code(host: RemoteHost) -> None:
    """Every stream is its own."""
    script = 'cat; echo "$PLACE $MORE"; echo words >&2; exit 3'
    child = host.run_now(["sh", "-c", script], deadline_s=10, most_bytes=100, stdin=b"in ", env={"MORE": "more"})
    assert (child.end, child.code, child.stdout, child.stderr) == (End.EXITED, 3, b"in there more\n", "words\n")


def test_bytes_come_as_they_are(host: RemoteHost) -> None:
    """Zeros and what is no UTF-8."""
    assert done(host, "printf", r"\000\377\n").stdout == b"\x00\xff\n"


def test_hanging_command_is_killed_there_with_its_children(host: RemoteHost, tmp_path: Path) -> None:
    """At its deadline; others go on meanwhile."""
    pids = tmp_path / "pids"
    assert done(host, "true").ok, "the session is open"
    child = done(host, "sh", "-c", f"sleep 100 & echo $! $$ > {pids}; wait", deadline_s=3.0)
    assert child.end is End.TIMEOUT
    eventually(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()))
    assert done(host, "true").ok


def test_flood_is_cut_and_the_tail_can_be_kept(host: RemoteHost) -> None:
    """As of a local command."""
    flood = done(host, "yes")
    assert (flood.end, len(flood.stdout)) == (End.TOO_LARGE, 1000)
    tail = asyncio.run(host.run(["seq", "1", "99999"], deadline_s=10, most_bytes=100, keep=Keep.TAIL))
    assert tail.ok
    assert tail.stdout.endswith(b"99998\n99999\n")


def test_missing_program_is_told_with_the_place(host: RemoteHost) -> None:
    """It is not missing here."""
    child = done(host, "no-such-program")
    assert child.end is End.MISSING
    assert child.describe() == "no-such-program is not installed on exec:env PLACE=there"


def test_cancelled_command_is_killed_there(host: RemoteHost, tmp_path: Path) -> None:
    """Ctrl-C here leaves nothing there."""
    pid_file = tmp_path / "pid"

    async def cancelled() -> None:
        argv = ["sh", "-c", f"echo $$ > {pid_file}; exec sleep 100"]
        task = asyncio.create_task(host.run(argv, deadline_s=60, most_bytes=10))
        await asyncio.to_thread(eventually, lambda: pid_file.exists() and pid_file.read_text().strip())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    eventually(lambda: not is_alive(int(pid_file.read_text())))


def test_end_of_the_connection_ends_what_runs_there(tmp_path: Path) -> None:
    """pdctl is killed, or the line is cut: the agent sees its stdin end, kills its commands and goes."""
    pid_file = tmp_path / "pid"
    host = RemoteHost("exec:env")

    async def interrupted() -> Child:
        argv = ["sh", "-c", f"echo $$ > {pid_file}; exec sleep 100"]
        task = asyncio.create_task(host.run(argv, deadline_s=60, most_bytes=10))
        await asyncio.to_thread(eventually, lambda: pid_file.exists() and pid_file.read_text().strip())
        await asyncio.to_thread(host.close)
        return await task

    assert asyncio.run(interrupted()).end is End.UNREACHABLE
    eventually(lambda: not is_alive(int(pid_file.read_text())))


def test_what_left_its_group_on_purpose_lives_on(host: RemoteHost, tmp_path: Path) -> None:
    """That is how a guard stays behind."""
    pid_file = tmp_path / "pid"
    leave = f"setsid sh -c 'echo $$ > {pid_file}; exec sleep 100' >/dev/null 2>&1 &"
    done(host, "sh", "-c", f"{leave} while [ ! -s {pid_file} ]; do sleep 0.01; done")
    host.close()
    survivor = int(pid_file.read_text())
    assert is_alive(survivor)
    os.kill(survivor, signal.SIGKILL)


def test_lost_connection_fails_what_waits_and_is_opened_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent is killed in the middle of a command: that one says so, a later one works."""
    monkeypatch.setattr(remote, "AGAIN_S", 0.0)
    with Hosts() as hosts:
        host = hosts.of("exec:env")
        lost = host.run_now(["sh", "-c", "kill -9 $PPID; sleep 100"], deadline_s=10, most_bytes=10)
        assert lost.end is End.UNREACHABLE
        assert lost.describe() == "exec:env cannot be reached: the connection was closed"
        assert host.run_now(["true"], deadline_s=10, most_bytes=10).ok


def test_host_without_python_is_told(tmp_path: Path) -> None:
    """It cannot run our part; the remedy is said."""
    (tmp_path / "sh").symlink_to("/bin/sh")
    with Hosts() as hosts:
        child = hosts.of(f"exec:env PATH={tmp_path}").run_now(["true"], deadline_s=10, most_bytes=10)
    assert child.end is End.UNREACHABLE
    assert "has no python3, which pdctl's part there needs" in child.stderr


def test_words_of_a_login_script_are_passed_over(tmp_path: Path) -> None:
    """Some print a greeting to stdout."""
    greeting = tmp_path / "greet"
    greeting.write_text('#!/bin/sh\necho "Welcome to gpu7"\nexec "$@"\n')
    greeting.chmod(0o755)
    with Hosts() as hosts:
        assert hosts.of(f"exec:{greeting}").run_now(["echo", "x"], deadline_s=10, most_bytes=10).stdout == b"x\n"


def test_silent_host_is_given_up_at_the_deadline() -> None:
    """It accepts and says nothing."""
    began = time.monotonic()
    with Hosts() as hosts:
        child = hosts.of("exec:sh -c 'exec sleep 100' #").run_now(["true"], deadline_s=0.3, most_bytes=10)
    assert child.end is End.TIMEOUT
    assert "did not answer within 0.3 s" in child.describe()
    assert time.monotonic() - began < 5


def test_connection_that_hangs_does_not_outlive_pdctl(tmp_path: Path) -> None:
    """Nobody closes it, and it reads nothing: it is killed when the interpreter ends."""
    pid_file = tmp_path / "pid"
    host = f"exec:sh -c 'echo $$ > {pid_file}; exec sleep 100' #"
    program = (
        "import sys; from pdctl.hosts.hosts import Hosts; "
        "Hosts().of(sys.argv[1]).run_now(['true'], deadline_s=1, most_bytes=1)"
    )
    subprocess.run([sys.executable, "-c", program, host], check=True, timeout=60)
    eventually(lambda: not is_alive(int(pid_file.read_text())))


@pytest.mark.parametrize("name", ["ssh:-oProxyCommand=touch", "ssh:", "ssh:a b", "exec:", "exec:'", "gpu7", "telnet:x"])
def test_name_that_is_no_host_is_refused(name: str) -> None:
    """One that begins with `-` would be an option."""
    with pytest.raises(UsageError):
        argv_of(name)


def test_ssh_is_asked_for_what_is_safe() -> None:
    """No agent, no forwarding, no question, no unknown key; the name comes after `--`."""
    argv = argv_of("ssh:root@gpu7")
    assert argv[-3:] == ("--", "root@gpu7", "sh")
    assert {"-a", "-x", "BatchMode=yes", "StrictHostKeyChecking=yes", "ClearAllForwardings=yes"} <= set(argv)
