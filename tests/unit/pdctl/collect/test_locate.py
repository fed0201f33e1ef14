"""Where on this host an instance lives."""

from __future__ import annotations

from pathlib import Path

from pdctl.collect import locate
from pdctl.collect.host_processes import ProcessRow, Table
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.deployment.state import StateFolder


def row(pid: int, ticks: int, *, unit: str | None = None, listening: tuple[int, ...] = ()) -> ProcessRow:
    """Return a process."""
    return ProcessRow(
        pid=pid, ppid=1, name="x", state="S", started_at=0.0, start_ticks=ticks, cpu_s=0.0, unit=unit,
        listening=listening,
    )  # fmt: skip


def pid_of(folder: Path, *rows: ProcessRow) -> int | None:
    """Return the root process of an instance on port 5 in unit u."""
    instance = Instance(
        name="d", role=Role.DECODE, dialect="pdctl", url="http://127.0.0.1:5", manager="systemd", unit="u.service"
    )
    deployment = Deployment(name="x", model="m", instances=(instance,))
    return locate.targets(deployment, StateFolder(folder, "x"), Table(processes=rows))[0].pid


def test_unit_that_does_not_listen_yet_is_found_by_its_group(tmp_path: Path) -> None:
    """Its oldest process is the one that systemd started."""
    assert pid_of(tmp_path, row(12, 20, unit="u.service"), row(11, 10, unit="u.service"), row(10, 5)) == 11


def test_who_listens_comes_first(tmp_path: Path) -> None:
    """A wrapper in the same unit is older, but is not the engine."""
    assert pid_of(tmp_path, row(11, 10, unit="u.service"), row(12, 20, unit="u.service", listening=(5,))) == 12


def test_loopback_of_another_host_is_told() -> None:
    """GETs go through that host; a probe goes out from here and would reach a stranger's engine, or none."""
    urls = {
        "a": ("http://127.0.0.1:1", "ssh:gpu7"),
        "b": ("http://gpu7:1", "ssh:gpu7"),
        "c": ("http://[::1]:2", "local"),
    }
    instances = tuple(
        Instance(name=name, role=Role.DECODE, dialect="pdctl", url=url, host=host) for name, (url, host) in urls.items()
    )
    lines = locate.unreachable_urls(Deployment(name="x", model="m", instances=instances))
    assert [line.partition(":")[0] for line in lines] == ["a"]
