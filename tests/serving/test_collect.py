"""Collections of real engines: serving, stopped, gone; stacks by the real py-spy."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.collect.session import CollectionSummary, collect
from pdctl.deployment import running
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.evidence.directory import read_directory
from pdctl.evidence.model import Evidence
from tests.serving import rig
from tests.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[rig.Pair]:
    with rig.pair(tiny_model_dir, tmp_path_factory.mktemp("engines")) as running_pair:
        running_pair.post("/generate", {"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 3}})
        yield running_pair


def deployed(pair: rig.Pair) -> Deployment:
    prefill = Instance(
        name="prefill-0",
        role=Role.PREFILL,
        dialect="pdctl",
        url=pair.prefill.url,
        bootstrap_port=pair.bootstrap_port,
    )
    decode = Instance(name="decode-0", role=Role.DECODE, dialect="pdctl", url=pair.decode.url)
    return Deployment(name="lab", model="test", instances=(prefill, decode))


def collected(
    pair: rig.Pair, out: Path, *, tier: int = 0, timeout_s: float = 12.0
) -> tuple[CollectionSummary, Evidence]:
    summary = collect(deployed(pair), tier=tier, interval_s=1.0, timeout_s=timeout_s, out=out)
    return summary, read_directory(out)


def test_a_serving_pair_is_seen_whole(pair: rig.Pair, tmp_path: Path) -> None:
    """Metrics, rooms, logs, processes and stacks of both sides are there, and nothing is a problem."""
    summary, evidence = collected(pair, tmp_path / "incident", tier=1)
    assert summary.is_complete
    assert [item.file for item in summary.missing] == []
    assert evidence.problems == ()
    for instance, process in zip(evidence.instances, (pair.prefill, pair.decode), strict=True):
        assert instance.metrics is not None
        assert instance.metrics.series["pdengine_info"]
        assert instance.log
        root, rank = instance.processes
        assert root.pid == process.pid
        assert (rank.rank, rank.ppid) == ("TP0", process.pid)
        assert {stack.pid for stack in instance.stacks} == {root.pid, rank.pid}
        assert {thread.name for stack in instance.stacks for thread in stack.threads} >= {"MainThread", "observer"}
        assert instance.source is not None
        assert instance.source.flag("--role") == instance.role
        assert instance.gets[0].status == 200
    assert summary.intrusion.attached == 8
    assert summary.intrusion.longest_pause_ms == 0.0


def test_tier_0_attaches_to_nothing(pair: rig.Pair, tmp_path: Path) -> None:
    """A healthy fleet is never attached to."""
    summary, evidence = collected(pair, tmp_path / "incident")
    assert summary.intrusion.attached == 0
    assert all(instance.stacks == () for instance in evidence.instances)


def test_a_stopped_engine_is_dumped_and_stays_stopped(pair: rig.Pair, tmp_path: Path) -> None:
    """SIGSTOP shows as state T; its stacks are read without continuing it; its peer is read as ever."""
    scheduler = _children(pair.decode.pid)[0]
    os.kill(scheduler, signal.SIGSTOP)
    os.kill(pair.decode.pid, signal.SIGSTOP)
    try:
        _, evidence = collected(pair, tmp_path / "incident", tier=1)
        assert _state(scheduler) == "T"
    finally:
        os.kill(scheduler, signal.SIGCONT)
        os.kill(pair.decode.pid, signal.SIGCONT)
    prefill, decode = evidence.instances
    assert [process.state for process in decode.processes] == ["T", "T"]
    assert decode.gets[0].error == "timeout"
    assert decode.metrics is None
    assert {stack.pid for stack in decode.stacks} == {pair.decode.pid, scheduler}
    assert prefill.metrics is not None
    eventually(lambda: pair.decode.get("/health")["status"] == "ok")


def test_a_traced_process_is_left_alone(pair: rig.Pair, tmp_path: Path) -> None:
    """Somebody else's debugger is named, and py-spy is not started on that process."""
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed: apt-get install gdb")
    scheduler = _children(pair.prefill.pid)[0]
    debugger = subprocess.Popen(
        ["gdb", "-q", "-batch", "-p", str(scheduler), "-ex", "shell sleep 60"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: f"TracerPid:\t{debugger.pid}" in Path(f"/proc/{scheduler}/status").read_text())
        _, evidence = collected(pair, tmp_path / "incident", tier=1)
    finally:
        for child in _children(debugger.pid):
            os.kill(child, signal.SIGKILL)
        debugger.kill()
        debugger.wait()
    prefill = evidence.instances[0]
    assert prefill.processes[1].tracer_pid == debugger.pid
    assert {stack.pid for stack in prefill.stacks} == {pair.prefill.pid}
    assert f"traced by gdb (pid {debugger.pid})" in prefill.capture.failed["stacks.json"]
    eventually(lambda: pair.prefill.get("/health")["status"] == "ok")


def test_a_hanging_pyspy_costs_only_the_stacks(pair: rig.Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """py-spy that never ends is killed and recorded; the rest is complete."""
    fake = tmp_path / "py-spy"
    fake.write_text("#!/bin/sh\nsleep 1000\n")
    fake.chmod(0o755)
    monkeypatch.setattr("pdctl.collect.stacks.find_pyspy", lambda: str(fake))
    monkeypatch.setattr("pdctl.collect.stacks.ONE_DUMP_S", 0.5)
    summary, evidence = collected(pair, tmp_path / "incident", tier=1)
    assert {item.file for item in summary.missing} == {"stacks.json", "stacks.prev.json"}
    assert all("was killed after" in item.error for item in summary.missing)
    assert all(instance.metrics is not None and instance.processes for instance in evidence.instances)


def test_the_engines_of_this_host_are_found_without_configuration(pair: rig.Pair) -> None:
    """Command lines and ports are enough to know our own engines, their roles and addresses."""
    found = running.running()
    ours = {i.url: i for i in found.deployment.instances if i.url in (pair.prefill.url, pair.decode.url)}
    assert ours[pair.prefill.url].role is Role.PREFILL
    assert ours[pair.prefill.url].bootstrap_port == pair.bootstrap_port
    assert ours[pair.decode.url].role is Role.DECODE
    assert f"pid {pair.decode.pid}," in "\n".join(found.taken)


def test_denied_ptrace_names_the_remedy(pair: rig.Pair, tmp_path: Path) -> None:
    """As another user the stacks are denied, and the record says what would allow them."""
    if os.geteuid() != 0:
        pytest.skip("needs root to become another user")
    pyspy = shutil.which("py-spy", path=str(Path(sys.executable).parent))
    assert pyspy is not None
    with tempfile.TemporaryDirectory() as public, pytest.MonkeyPatch.context() as patch:
        # A copy where anybody may run it: pytest's own folders are for this user alone.
        Path(public).chmod(0o755)
        copy = shutil.copy(pyspy, Path(public) / "real")
        lowered = Path(public) / "py-spy"
        lowered.write_text(f'#!/bin/sh\nexec setpriv --reuid 65534 --clear-groups "{copy}" "$@"\n')
        lowered.chmod(0o755)
        patch.setattr("pdctl.collect.stacks.find_pyspy", lambda: str(lowered))
        _, evidence = collected(pair, tmp_path / "incident", tier=1)
    failed = evidence.instances[0].capture.failed["stacks.json"]
    assert "ptrace is denied" in failed
    assert "cap_sys_ptrace" in failed


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
