"""What else a restart would deploy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pdctl.deployment.model import Instance, Role
from pdctl.managers.shim import Life, Observation, Record
from pdctl.recover.drift import drift_of, needed_by
from tests.waiting import eventually

STARTED_AT = 1_000_000_000.0
"""In 2001: whatever this test writes is newer, unless it says otherwise."""


def seen(argv: tuple[str, ...], pid: int | None = None, started_at: float | None = STARTED_AT) -> Observation:
    """Return a process that runs with this command line."""
    life = Life.RUNNING if pid else Life.EXITED
    return Observation(life, Record(
        instance="x", argv=argv, boot_id="b", shim_pid=pid or 1, shim_start_ticks=1, state="running", pid=pid,
        start_ticks=1, started_at=started_at,
    ))  # fmt: skip


def instance(*start: str, **env: str) -> Instance:
    """Return what would be started."""
    return Instance(name="x", role=Role.DECODE, dialect="pdctl", url="http://127.0.0.1:1", start=start, env=env)


def whats(found: tuple[object, ...]) -> list[str]:
    """Return the differences in words."""
    return [item.what for item in found]  # type: ignore[attr-defined]


def test_same_command_and_older_files_are_no_drift(tmp_path: Path) -> None:
    """Weights from before the process."""
    weights = tmp_path / "w.gguf"
    weights.write_bytes(b"x")
    os.utime(weights, (STARTED_AT - 1, STARTED_AT - 1))
    argv = ("/bin/engine", "--model", str(weights))
    assert drift_of(instance(*argv), seen(argv)) == ()


def test_flags_are_named_both_ways() -> None:
    """What it runs with, and what it would run with."""
    found = whats(drift_of(instance("e", "--tp", "2"), seen(("e", "--tp", "1"))))
    assert found == ["other command line: runs without 2; runs with 1"]


def test_environment_of_the_running_process_counts() -> None:
    """Read from the process itself. (Not from this one: a test runner that renames itself writes over its own.)"""
    found = environment_drift({}, PDCTL_TEST_DRIFT="1")
    assert found == ["environment: PDCTL_TEST_DRIFT is not set, would be '1'"]


def test_what_the_shell_of_the_restart_lacks_is_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other GPUs and another transport are not deployed by whoever is paged; a secret is not printed for it."""
    monkeypatch.setenv("UCX_TLS", "tcp")
    monkeypatch.setenv("EDITOR", "vi")
    found = environment_drift({"CUDA_VISIBLE_DEVICES": "4,5", "UCX_TLS": "rc", "VLLM_API_KEY": "geheim-123", "A": "b"})
    assert found == [
        "environment: CUDA_VISIBLE_DEVICES is '4,5', would be not set",
        "environment: UCX_TLS is 'rc', would be 'tcp'",
        "environment: VLLM_API_KEY is '***', would be not set",
    ]


def environment_drift(has: dict[str, str], **wanted: str) -> list[str]:
    """Return the drift of a process that has this environment beside what this one shares with it."""
    shared = {name: value for name, value in os.environ.items() if name not in has and name != "UCX_TLS"}
    argv = ("e",)
    with subprocess.Popen(["sleep", "60"], env=shared | has) as child:
        try:
            # Popen returns while the kernel is still setting up the new program: for a moment it has no environment.
            eventually(lambda: Path(f"/proc/{child.pid}/environ").read_bytes())
            return whats(drift_of(instance(*argv, **wanted), seen(argv, pid=child.pid)))
        finally:
            child.kill()


def test_newer_weights_are_named(tmp_path: Path) -> None:
    """The newest file of a folder, and how long after the start it changed."""
    for name, age in (("a.safetensors", -5), ("b.safetensors", 60)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (STARTED_AT + age, STARTED_AT + age))
    argv = ("/bin/engine", "--model", str(tmp_path))
    (found,) = whats(drift_of(instance(*argv), seen(argv)))
    assert found.startswith(f"weights: {tmp_path / 'b.safetensors'} changed ")
    assert found.endswith(", 60 s after the process started")


def test_newer_code_of_the_module_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package that `-m` runs, as this interpreter finds it; only Python and shared objects count."""
    package = tmp_path / "enginelike"
    package.mkdir()
    for name, at in (("__init__.py", STARTED_AT - 9), ("loop.py", STARTED_AT + 30), ("notes.txt", STARTED_AT + 99)):
        (package / name).write_text("")
        os.utime(package / name, (at, at))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("importlib.metadata.distributions", lambda: iter(()))
    argv = (sys.executable, "-m", "enginelike")
    (found,) = whats(drift_of(instance(*argv), seen(argv)))
    assert found.startswith("code: enginelike: loop.py changed ")
    assert found.endswith(", 30 s after the process started")


def test_packages_count_only_where_the_module_needs_them() -> None:
    """Our engine needs torch, and by it sympy; a test runner that was installed since is no drift."""
    needed = needed_by("engine")
    assert {"torch", "pyzmq", "starlette", "sympy"} <= needed
    assert not {"pytest", "hypothesis", "ruff"} & needed
