"""Of an instance that nobody manages: which process served, and when it is certain that it is gone."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path

import pytest
from msgspec.structs import replace

from pdctl.collect import gpu, kernel, locate, processes, sightings, source
from pdctl.collect.context import Context, Deadline
from pdctl.collect.fetch import Fetcher
from pdctl.collect.host_facts import HostFacts
from pdctl.collect.host_processes import ProcessRow, Table
from pdctl.collect.records import Status, Taken
from pdctl.collect.target import Target
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.deployment.state import StateFolder
from pdctl.hosts.hosts import Hosts

INIT = ProcessRow(pid=1, ppid=0, name="init", state="S", started_at=0.0, start_ticks=1, cpu_s=0.0)
DECODE = Instance(name="d", role=Role.DECODE, dialect="vllm", url="http://127.0.0.1:8100")
COMMAND = ("/v/bin/python", "/v/bin/vllm", "serve", "m", "--port", "8100", "--api-key", "k3y-of-the-house")


def server(log: Path, **more: object) -> ProcessRow:
    """Return the process that serves decode."""
    row = ProcessRow(
        pid=50, ppid=1, name="vllm", state="S", started_at=1000.0, start_ticks=99, cpu_s=0.0, cmdline=COMMAND,
        stdout=str(log), listening=(8100,),
    )  # fmt: skip
    return replace(row, **more)


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    """The state of a deployment whose decode was seen at work; its log is there."""
    log = tmp_path / "decode.log"
    log.write_text("INFO 11-30 03:08:43 hello\n")
    state = StateFolder(tmp_path, "x")
    locate.remember(deployment(), state, Table(processes=(INIT, server(log))), print)
    return state


def deployment(**more: object) -> Deployment:
    """Return the deployment of decode alone."""
    return Deployment(name="x", model="m", instances=(replace(DECODE, **more),))


def found(folder: StateFolder, *rows: ProcessRow, problem: str | None = None, **more: object) -> Target:
    """Return where decode is among these processes."""
    return locate.targets(deployment(**more), folder, Table(processes=rows, problem=problem))[0]


def test_what_is_no_more_is_gone_and_its_log_is_still_read(folder: StateFolder) -> None:
    """No process has its pid: that is told with the process that it was."""
    target = found(folder, INIT)
    assert (target.pid, target.last and target.last.pid) == (None, 50)
    assert [path.name for path in target.log_files] == ["decode.log"]


def test_another_process_with_the_same_pid_is_another(folder: StateFolder) -> None:
    """Pids are given again; the start tells them apart."""
    stranger = ProcessRow(pid=50, ppid=1, name="sh", state="S", started_at=9000.0, start_ticks=800, cpu_s=0.0)
    assert found(folder, INIT, stranger).last is not None


def test_what_runs_but_listens_no_more_is_still_it(folder: StateFolder, tmp_path: Path) -> None:
    """It is not gone: its process and log are looked at."""
    target = found(folder, INIT, server(tmp_path / "decode.log", listening=()))
    assert (target.pid, target.last) == (50, None)


NEXT_RUN = {
    "the same port": (COMMAND, False),
    "no port, the default is another": (("vllm", "serve", "m"), True),
    "another port": (("vllm", "serve", "m", "--port", "9"), True),
}


@pytest.mark.parametrize(("command", "is_gone"), list(NEXT_RUN.values()), ids=NEXT_RUN)
def test_where_the_next_run_is_starting_nothing_is_certain(
    folder: StateFolder, tmp_path: Path, command: tuple[str, ...], is_gone: bool
) -> None:
    """A process that is started for that port and does not listen yet may be it."""
    starting = server(tmp_path / "other.log", pid=51, start_ticks=500, listening=(), cmdline=command)
    assert (found(folder, INIT, starting).last is not None) is is_gone


def test_half_a_look_proves_nothing(folder: StateFolder) -> None:
    """A table that broke off, or that shows this user's processes alone, may lack it."""
    assert found(folder, INIT, problem="reading /proc: timeout").last is None
    assert found(folder, replace(INIT, pid=7)).last is None


def test_a_container_numbers_its_processes_anew(folder: StateFolder) -> None:
    """What was seen under another numbering of pids is not looked for in this one."""
    kept = sightings.load(folder)[DECODE.url]
    assert not sightings.is_certainly_gone(replace(kept, space="pid:[1]"), Table(processes=(INIT,)))


def test_a_unit_is_asked_of_its_manager_alone(folder: StateFolder) -> None:
    """systemd knows how it ended, and the journal what it said."""
    assert found(folder, INIT, manager="systemd", unit="d.service").last is None


def test_no_credential_is_kept(folder: StateFolder) -> None:
    """Its command line is, without what opens doors."""
    text = (folder.folder / "sightings.json").read_text()
    assert "k3y-of-the-house" not in text
    assert "--api-key" in text


def test_a_file_of_another_version_is_passed_over(folder: StateFolder) -> None:
    """Nothing is known then, and nothing fails."""
    (folder.folder / "sightings.json").write_text('{"http://127.0.0.1:8100": {"pid": "x"}}')
    assert sightings.load(folder) == {}


def test_who_starts_an_engine_is_no_part_of_it(folder: StateFolder, tmp_path: Path) -> None:
    """A router that renamed itself is no child of the script that started it, though both run in one Python."""
    python = "/usr/bin/python3.11"
    script = server(tmp_path / "s.log", pid=40, start_ticks=10, cmdline=("python", "rig.py"), listening=(), exe=python)
    title = ("vllm::router",)
    router = server(tmp_path / "r.log", pid=41, ppid=40, start_ticks=11, cmdline=title, listening=(9,), exe=python)
    assert found(folder, INIT, script, router, url="http://127.0.0.1:9").pid == 41


def test_the_main_process_of_a_part_that_listens_is_found(folder: StateFolder, tmp_path: Path) -> None:
    """Several API servers share the port of the `vllm serve` that started them."""
    main = server(tmp_path / "s.log", pid=40, start_ticks=10, listening=(), exe="/p")
    part = server(tmp_path / "s.log", pid=41, ppid=40, start_ticks=11, cmdline=("VLLM::ApiServer_0",), exe="/p")
    assert found(folder, INIT, main, part).pid == 40


def test_what_cannot_be_kept_is_told_and_costs_nothing_else(tmp_path: Path) -> None:
    """A note for another day must not end today's diagnosis: it is one line."""
    state, told = StateFolder(tmp_path, "x"), []
    (state.folder / "sightings.json").mkdir(parents=True)
    locate.remember(deployment(), state, Table(processes=(INIT, server(tmp_path / "d.log"))), told.append)
    assert len(told) == 1
    assert "Is a directory" in told[0]


@pytest.mark.parametrize("is_seen_first", [False, True], ids=["before both looks", "between them"])
def test_the_end_is_evidence(folder: StateFolder, tmp_path: Path, is_seen_first: bool) -> None:
    """process.toml has the process that was, in state gone, with its start: who dies again and again dies in a look."""
    first = (INIT, server(tmp_path / "decode.log")) if is_seen_first else (INIT,)
    target = found(folder, *first)
    host = HostFacts(
        table=Table(processes=first),
        kernel=Taken(name=kernel.NAME, status=Status.ABSENT),
        gpus=gpu.Gpus(),
        sources=source.Sources(),
    )
    with Hosts() as hosts:
        context = Context(fetcher=Fetcher(hosts), deadline=Deadline(5.0))
        taken = asyncio.run(processes.take(target, context, host, Table()))
    (row,) = tomllib.loads((taken[0].content or b"").decode())["process"]
    assert (row["pid"], row["state"], row["started_at"].timestamp()) == (50, "gone", 1000.0)
