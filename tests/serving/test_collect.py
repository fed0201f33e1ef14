"""Collections of real engines: serving, stopped, gone; stacks by the real py-spy."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pdctl.collect import host_processes
from pdctl.collect.session import CollectionSummary, collect
from pdctl.deployment import files, running
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.evidence.directory import read_directory
from pdctl.evidence.model import Evidence
from tests.cli import pdctl_process
from tests.serving import rig
from tests.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[rig.Pair]:
    with rig.pair(tiny_model_dir, tmp_path_factory.mktemp("engines")) as running_pair:
        running_pair.post("/generate", {"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 3}})
        yield running_pair


def deployed(pair: rig.Pair) -> Deployment:
    return Deployment(name="lab", model="test", instances=rig.instances(pair))


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
        root, *others = instance.processes
        assert root.pid == process.pid
        assert [item.ppid for item in others if item.rank == "TP0"] == [process.pid]
        assert {stack.pid for stack in instance.stacks} == {item.pid for item in instance.processes}
        assert {thread.name for stack in instance.stacks for thread in stack.threads} >= {"MainThread", "observer"}
        assert instance.source is not None
        assert instance.source.flag("--role") == instance.role
        assert instance.gets[0].status == 200
    # Twice: tier 1 takes two dumps.
    assert summary.intrusion.attached == 2 * sum(len(instance.processes) for instance in evidence.instances)
    assert summary.intrusion.longest_pause_ms == 0.0


def test_tier_0_attaches_to_nothing(pair: rig.Pair, tmp_path: Path) -> None:
    """A healthy fleet is never attached to."""
    summary, evidence = collected(pair, tmp_path / "incident")
    assert summary.intrusion.attached == 0
    assert all(instance.stacks == () for instance in evidence.instances)


def test_a_stopped_engine_is_dumped_and_stays_stopped(pair: rig.Pair, tmp_path: Path) -> None:
    """SIGSTOP shows as state T; its stacks are read without continuing it; its peer is read as ever."""
    scheduler = _scheduler(pair.decode.pid)
    os.kill(scheduler, signal.SIGSTOP)
    os.kill(pair.decode.pid, signal.SIGSTOP)
    try:
        _, evidence = collected(pair, tmp_path / "incident", tier=1)
        assert _state(scheduler) == "T"
    finally:
        os.kill(scheduler, signal.SIGCONT)
        os.kill(pair.decode.pid, signal.SIGCONT)
    prefill, decode = evidence.instances
    states = {process.pid: process.state for process in decode.processes}
    assert (states[pair.decode.pid], states[scheduler]) == ("T", "T")
    assert decode.gets[0].error == "timeout"
    assert decode.metrics is None
    assert {stack.pid for stack in decode.stacks} >= {pair.decode.pid, scheduler}
    assert prefill.metrics is not None
    eventually(lambda: pair.decode.get("/health")["status"] == "ok")


def test_a_traced_process_is_left_alone(pair: rig.Pair, tmp_path: Path) -> None:
    """Somebody else's debugger is named, and py-spy is not started on that process."""
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed: apt-get install gdb")
    scheduler = _scheduler(pair.prefill.pid)
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
    assert [item.tracer_pid for item in prefill.processes if item.pid == scheduler] == [debugger.pid]
    assert scheduler not in {stack.pid for stack in prefill.stacks}
    assert pair.prefill.pid in {stack.pid for stack in prefill.stacks}
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
    table = host_processes.read_now(deadline_s=10)
    # Other tests may run engines on this host at the same time.
    ours = table.tree(pair.prefill.pid) + table.tree(pair.decode.pid)
    found = running.find(host_processes.Table(processes=ours))
    by_url = {instance.url: instance for instance in found.deployment.instances}
    assert by_url.keys() == {pair.prefill.url, pair.decode.url}
    assert by_url[pair.prefill.url].role is Role.PREFILL
    assert by_url[pair.prefill.url].bootstrap_port == pair.bootstrap_port
    assert by_url[pair.decode.url].role is Role.DECODE
    assert found.untold == ()


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


def _scheduler(pid: int) -> int:
    """Return the rank's process below an engine."""
    return next(child for child in _children(pid) if b"engine.scheduler" in Path(f"/proc/{child}/cmdline").read_bytes())


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_pdctl_stacks_shows_the_threads_of_both_sides(pair: rig.Pair, tmp_path: Path) -> None:
    """The scheduler's threads stand under their instance, in text and in JSON."""
    files.save(deployed(pair), tmp_path / "pd.toml")
    text = pdctl_process.run(tmp_path, "stacks", "decode-0")
    assert text.returncode == 0, text.stderr
    assert "== decode-0: " in text.stdout
    assert "Thread transfer-control" in text.stdout
    assert "prefill-0" not in text.stdout
    dumps = json.loads(pdctl_process.run(tmp_path, "stacks", "-o", "json").stdout)
    assert [dump["instance"] for dump in dumps] == ["prefill-0", "decode-0"]
    titles = {dump["instance"]: [item["title"] for item in dump["processes"]] for dump in dumps}
    assert all(any("-m engine.scheduler" in title for title in own) for own in titles.values()), titles


def test_pdctl_metrics_shows_what_moved(pair: rig.Pair, tmp_path: Path) -> None:
    """A request between the two scrapes shows as the increase of the prompt tokens it cost."""
    files.save(deployed(pair), tmp_path / "pd.toml")
    words = ("metrics", "prefill-0", "--interval", "4", "--grep", "prompt_tokens_total", "-o", "json")
    before = _scrapes(pair.prefill)
    process = pdctl_process.start(tmp_path, *words)
    # Our own looks count too; the one more is pdctl's first.
    looks = itertools.count(1)
    eventually(lambda: _scrapes(pair.prefill) > before + next(looks), 30)
    pair.post("/generate", {"input_ids": [5, 6, 7, 8], "sampling_params": {"max_new_tokens": 2}})
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert [item["increase"] for item in json.loads(out)["samples"]] == [4]


def test_pdctl_metrics_names_who_does_not_answer(pair: rig.Pair, tmp_path: Path) -> None:
    """The others are shown, and the exit code says that one is missing."""
    gone = Instance(name="gone", role=Role.DECODE, dialect="pdctl", url=f"http://127.0.0.1:{rig.free_port()}")
    deployment = deployed(pair)
    files.save(Deployment(name="lab", model="test", instances=(deployment.instances[0], gone)), tmp_path / "pd.toml")
    done = pdctl_process.run(tmp_path, "metrics", "--interval", "0")
    assert done.returncode == 1
    assert "gone: GET" in done.stderr
    assert "refused" in done.stderr
    assert "pdengine_steps_total" in done.stdout


def _scrapes(engine: rig.Process) -> float:
    """Return how many scrapes were answered before this one."""
    lines = httpx.get(engine.url + "/metrics", timeout=10).text.splitlines()
    counts = [line for line in lines if line.startswith("pdengine_http_requests_total") and 'path="/metrics"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in counts)
