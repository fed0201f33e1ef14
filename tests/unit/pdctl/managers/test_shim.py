"""The shim, with real processes and signals."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from pdctl.errors import PdctlError
from pdctl.managers import shim, shim_process
from tests.waiting import eventually

FOREVER = ("sleep", "1000")


class Lab:
    """One instance in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths = shim.Paths(folder / "i.json", folder / "i.log")

    def start(self, argv: Sequence[str], **settings: object) -> shim.Observation:
        return shim.start("i", argv, {"GREETING": "hello"}, self.paths, cwd=self.folder, **settings)  # type: ignore[arg-type]

    def shell(self, script: str, **settings: object) -> shim.Observation:
        return self.start(("sh", "-c", script), **settings)

    def life(self) -> shim.Life:
        return shim.observe(self.paths).life

    def record(self) -> shim.Record:
        record = shim.observe(self.paths).record
        assert record is not None
        return record

    def log(self) -> str:
        return self.paths.log.read_text()

    def rewrite(self, **changes: object) -> None:
        self.paths.state.write_bytes(msgspec.json.encode(msgspec.structs.replace(self.record(), **changes)))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """An instance that is gone after the test, however the test ends."""
    lab = Lab(tmp_path)
    yield lab
    shim.ask_to_stop(lab.paths)
    shim.await_stopped(lab.paths, 0.0)


def is_gone(pid: int) -> bool:
    return shim_process.start_ticks(pid) is None


def test_start_runs_the_command_and_says_its_pid(lab: Lab) -> None:
    """The pid in the record is the command itself, not a wrapper."""
    seen = lab.start(FOREVER)
    assert seen.life is shim.Life.RUNNING
    assert Path(f"/proc/{seen.pid}/cmdline").read_bytes() == b"sleep\x001000\x00"


def test_engine_has_the_folder_environment_and_log_it_was_given(lab: Lab) -> None:
    """Both output streams go to the log file; the added variables and the folder are in force."""
    lab.shell('echo "$GREETING from $PWD"; echo trouble >&2')
    eventually(lambda: lab.life() is shim.Life.EXITED)
    assert lab.log() == f"hello from {lab.folder}\ntrouble\n"


def test_shim_has_a_session_of_its_own(lab: Lab) -> None:
    """A hang-up or Ctrl-C of our terminal cannot reach it."""
    record = lab.start(FOREVER).record
    assert record is not None and record.pid is not None
    assert os.getsid(record.shim_pid) == record.shim_pid
    assert os.getpgid(record.pid) == record.pid


@pytest.mark.parametrize(
    ("script", "explanation"),
    [("exit 7", "exited with code 7"), ("exit 0", "exited with code 0"), ("kill -SEGV $$", "killed by SIGSEGV")],
)
def test_end_is_recorded(lab: Lab, script: str, explanation: str) -> None:
    """How the engine ended is known afterwards, and that nobody asked for it."""
    lab.shell(script)
    eventually(lambda: lab.life() is shim.Life.EXITED)
    assert shim.observe(lab.paths).explanation() == explanation
    assert not lab.record().stopped_on_purpose


def test_stop_lets_the_engine_finish(lab: Lab) -> None:
    """SIGTERM comes first; an engine that leaves by itself is not killed, and its code is kept."""
    lab.shell('trap "echo draining; exit 3" TERM; echo up; sleep 1000 & wait')
    eventually(lambda: lab.log() == "up\n")
    shim.ask_to_stop(lab.paths)
    assert shim.await_stopped(lab.paths, 20.0) is False
    assert lab.log() == "up\ndraining\n"
    assert (lab.life(), lab.record().exit_code) == (shim.Life.STOPPED, 3)


def test_stop_works_whatever_mask_the_starter_had(lab: Lab) -> None:
    """`up` holds signals back while it starts an instance; the shim must not inherit that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
    try:
        lab.start(FOREVER)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    shim.ask_to_stop(lab.paths)
    assert shim.await_stopped(lab.paths, 20.0) is False


def test_stop_kills_the_whole_group_at_the_deadline(lab: Lab) -> None:
    """An engine that ignores SIGTERM goes, and so do its children."""
    lab.shell('trap "" TERM; sleep 1000 & echo $!; sleep 1000')
    child = int(eventually(lab.log))
    shim.ask_to_stop(lab.paths)
    assert shim.await_stopped(lab.paths, 0.1) is True
    assert is_gone(child)
    assert shim.leftovers(lab.paths) == []


def test_shim_enforces_its_own_deadline(lab: Lab) -> None:
    """A pdctl that dies after asking leaves no engine behind."""
    lab.shell('trap "" TERM; echo up; while :; do sleep 1000; done', stop_deadline_s=0.2)
    eventually(lab.log)
    shim.ask_to_stop(lab.paths)
    eventually(lambda: shim.leftovers(lab.paths) == [])
    assert lab.record().signal == signal.SIGKILL


def test_children_do_not_outlive_a_dead_engine(lab: Lab) -> None:
    """A rank whose leader has crashed is killed by the shim."""
    lab.shell("sleep 1000 & echo $!; exit 5")
    child = int(eventually(lab.log))
    eventually(lambda: is_gone(child))
    assert lab.record().exit_code == 5


def test_engine_survives_its_shim(lab: Lab) -> None:
    """Killed with SIGKILL, the shim takes neither the engine nor its log with it."""
    lab.shell('trap "echo alive" USR1; while :; do sleep 0.01; done')
    record = lab.record()
    assert record.pid is not None
    os.kill(record.shim_pid, signal.SIGKILL)
    eventually(lambda: lab.life() is shim.Life.UNSUPERVISED)
    os.kill(record.pid, signal.SIGUSR1)
    eventually(lambda: lab.log() == "alive\n")


def test_engine_without_shim_is_stopped_all_the_same(lab: Lab) -> None:
    """pdctl signals the group itself, and the record says that it was meant."""
    lab.shell("sleep 1000 & echo $!; wait")
    child = int(eventually(lab.log))
    os.kill(lab.record().shim_pid, signal.SIGKILL)
    eventually(lambda: lab.life() is shim.Life.UNSUPERVISED)
    shim.ask_to_stop(lab.paths)
    shim.await_stopped(lab.paths, 20.0)
    assert is_gone(child)
    assert lab.life() is shim.Life.STOPPED


def test_orphans_of_a_dead_engine_and_shim_are_found(lab: Lab) -> None:
    """Leader and shim killed, the rest of the group is still known and stopped."""
    lab.shell("sleep 1000 & echo $!; wait")
    child = int(eventually(lab.log))
    record = lab.record()
    assert record.pid is not None
    os.kill(record.shim_pid, signal.SIGKILL)
    os.kill(record.pid, signal.SIGKILL)
    eventually(lambda: lab.life() is shim.Life.VANISHED)
    assert shim.leftovers(lab.paths) == [child]
    shim.ask_to_stop(lab.paths)
    shim.await_stopped(lab.paths, 20.0)
    assert is_gone(child)


def test_reused_pid_is_not_ours(lab: Lab) -> None:
    """A process with the recorded pid and another start time is a stranger, and is left alone."""
    lab.shell("exit 0")
    eventually(lambda: lab.life() is shim.Life.EXITED)
    with subprocess.Popen(FOREVER) as stranger:
        ticks = shim_process.start_ticks(stranger.pid)
        assert ticks is not None
        lab.rewrite(state="running", pid=stranger.pid, start_ticks=ticks - 1)
        assert lab.life() is shim.Life.PID_REUSED
        shim.ask_to_stop(lab.paths)
        shim.await_stopped(lab.paths, 0.0)
        assert stranger.poll() is None
        stranger.kill()


def test_same_pid_and_ticks_of_another_boot_are_not_ours(lab: Lab) -> None:
    """Start times count from boot, so they only compare within one."""
    with subprocess.Popen(FOREVER) as stranger:
        lab.shell("exit 0")
        eventually(lambda: lab.life() is shim.Life.EXITED)
        lab.rewrite(
            state="running",
            pid=stranger.pid,
            start_ticks=shim_process.start_ticks(stranger.pid),
            boot_id="00000000-0000-0000-0000-000000000000",
        )
        assert lab.life() is shim.Life.PID_REUSED
        stranger.kill()


def test_pid_file_of_a_dead_process_is_told_apart(lab: Lab) -> None:
    """Running by the record, with no such process: vanished, not exited."""
    lab.shell("exit 0")
    eventually(lambda: lab.life() is shim.Life.EXITED)
    lab.rewrite(state="running")
    assert lab.life() is shim.Life.VANISHED


def test_end_is_not_guessed_while_the_shim_is_about_to_tell(lab: Lab) -> None:
    """Between an engine's death and the shim's note of it, the answer waits for the note."""
    record = lab.start(FOREVER).record
    assert record is not None and record.pid is not None
    os.kill(record.shim_pid, signal.SIGSTOP)
    os.kill(record.pid, signal.SIGKILL)
    eventually(lambda: is_gone(record.pid or 0))
    assert lab.life() is shim.Life.ENDING
    os.kill(record.shim_pid, signal.SIGCONT)
    eventually(lambda: lab.life() is not shim.Life.ENDING)
    assert shim.observe(lab.paths).explanation() == "killed by SIGKILL"


@pytest.mark.parametrize("content", [b"", b'{"instance": "i", "pi', b"[]"])
def test_half_a_record_is_no_process(lab: Lab, content: bytes) -> None:
    """A record that cannot be read is not an error of every command."""
    lab.paths.state.write_bytes(content)
    assert lab.life() is shim.Life.VANISHED


def test_never_started(lab: Lab) -> None:
    """Without a record there is nothing, and stopping it is fine."""
    assert lab.life() is shim.Life.NEVER
    assert shim.await_stopped(lab.paths, 0.0) is False


def test_no_restart_unless_asked(lab: Lab) -> None:
    """A crash stays a crash."""
    lab.shell("echo run; exit 1")
    eventually(lambda: lab.life() is shim.Life.EXITED and shim.leftovers(lab.paths) == [])
    assert (lab.log(), lab.record().restarts) == ("run\n", 0)


def test_restart_on_failure(lab: Lab) -> None:
    """Asked for, a crash is followed by another run, counted."""
    lab.shell("test -e again && exec sleep 1000; touch again; exit 1", restart="on-failure")
    eventually(lambda: lab.life() is shim.Life.BACKING_OFF)
    eventually(lambda: lab.life() is shim.Life.RUNNING)
    assert lab.record().restarts == 1


def test_restart_on_failure_leaves_success_alone(lab: Lab) -> None:
    """An engine that was drained stays away."""
    lab.shell("exit 0", restart="on-failure")
    eventually(lambda: lab.life() is shim.Life.EXITED and shim.leftovers(lab.paths) == [])
    assert lab.record().restarts == 0


def test_stop_while_backing_off(lab: Lab) -> None:
    """A crash loop ends when it is stopped."""
    lab.shell("exit 1", restart="on-failure")
    eventually(lambda: lab.life() is shim.Life.BACKING_OFF)
    shim.ask_to_stop(lab.paths)
    shim.await_stopped(lab.paths, 20.0)
    assert lab.life() is shim.Life.STOPPED


def test_log_rotates_under_a_running_engine(lab: Lab) -> None:
    """The old lines go to `.1`, the engine goes on in the emptied file."""
    lab.shell('trap "echo later" USR1; seq 1000; while :; do sleep 0.01; done', log_max_bytes=1000)
    aside = lab.folder / "i.log.1"
    eventually(lambda: aside.exists() and lab.log() == "")
    assert aside.read_text() == "".join(f"{n}\n" for n in range(1, 1001))
    pid = lab.record().pid
    assert pid is not None
    os.kill(pid, signal.SIGUSR1)
    eventually(lambda: lab.log() == "later\n")


def test_command_that_does_not_exist(lab: Lab) -> None:
    """The error names instance, command and reason; nothing runs."""
    with pytest.raises(PdctlError, match=r"cannot start i: cannot start /no/such/engine: No such file"):
        lab.start(("/no/such/engine",))
    eventually(lambda: shim.leftovers(lab.paths) == [])


def test_shim_needs_only_the_standard_library() -> None:
    """It runs isolated and without site-packages, so an upgrade of pdctl cannot break a running one."""
    code = f"import runpy; runpy.run_path({str(Path(shim_process.__file__))!r})"
    done = subprocess.run(["python3", "-I", "-S", "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
