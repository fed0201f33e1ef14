"""What nvidia-smi prints -> gpu.toml. The texts have the form that its manual describes."""

from __future__ import annotations

import asyncio
import shutil
import tomllib
from pathlib import Path

import pytest

from pdctl.collect import gpu
from pdctl.collect.context import Context, Deadline
from pdctl.collect.fetch import Fetcher
from pdctl.collect.gpu import Gpus
from pdctl.collect.records import Status

TWO = b"""0, GPU-aa, 00000000:3B:00.0, 87, 71234, 81559, 312.44, 0
1, GPU-bb, 00000000:5E:00.0, [N/A], 12, 81559, [Unknown Error], [N/A]
"""
USERS = b"4711, GPU-bb\n4712, GPU-bb\n"


def read() -> Gpus:
    async def once() -> Gpus:
        fetcher = Fetcher()
        return await gpu.read(Context(fetcher=fetcher, deadline=Deadline(10)))

    return asyncio.run(once())


def install(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_devices_and_what_they_do_not_tell() -> None:
    """Numbers are typed; `[N/A]` and errors are unknown, never zero."""
    first, second = gpu.parse_devices(TWO)
    assert (first.index, first.util_percent, first.memory_used_mb, first.power_w, first.ecc_errors) == (
        *(0, 87.0, 71234.0, 312.44, 0),
    )
    assert (second.util_percent, second.power_w, second.ecc_errors) == (None, None, None)


def test_an_instance_has_the_devices_it_computes_on() -> None:
    """Where the driver knows whose a device is, the others are left out; its slot tells which faults are its own."""
    gpus = Gpus(devices=gpu.parse_devices(TWO), users=gpu.parse_users(USERS))
    own = tomllib.loads((gpu.taken(gpus, {4711}).content or b"").decode())["gpu"]
    assert [(device["index"], device["bus"]) for device in own] == [(1, "00000000:5E:00.0")]
    every = tomllib.loads((gpu.taken(gpus, {1}).content or b"").decode())["gpu"]
    assert [device["index"] for device in every] == [0, 1]


def test_a_driver_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-smi that never returns costs its deadline and is a timeout, not an absent device."""
    install(tmp_path, "sleep 1000", monkeypatch)
    monkeypatch.setattr(gpu, "GPU_S", 0.3)
    gpus = read()
    assert gpus.status is Status.TIMEOUT
    assert gpu.taken(gpus, ()).content is None


def test_no_driver_is_a_record_of_absence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without nvidia-smi is told apart from one whose driver fails."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read().status is Status.ABSENT
    install(tmp_path, "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", monkeypatch)
    assert read().status is Status.FAILED


@pytest.mark.gpu
def test_a_real_device_is_read() -> None:
    """On a machine with a device its memory is told."""
    if shutil.which("nvidia-smi") is None:
        pytest.skip("no nvidia-smi here")
    gpus = read()
    assert gpus.problem is None
    assert gpus.devices[0].index == 0
    assert (gpus.devices[0].memory_total_mb or 0) > 1000
