"""Collector: the devices of this host by `nvidia-smi`, in a child that can be killed: with a sick driver it hangs.

No CUDA context is made and no library of the driver is loaded into pdctl.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable

import msgspec

from pdctl.collect.context import Context
from pdctl.collect.records import Status, Taken
from pdctl.evidence import toml_text
from pdctl.hosts import child

NAME = "gpu.toml"
GPU_S = 5.0
# Names that the format uses, in the order of the query.
FIELDS = {
    "index": "index",
    "uuid": "uuid",
    "pci.bus_id": "bus",
    "utilization.gpu": "util_percent",
    "memory.used": "memory_used_mb",
    "memory.total": "memory_total_mb",
    "power.draw": "power_w",
    "ecc.errors.uncorrected.volatile.total": "ecc_errors",
}


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One device; what it does not tell is None."""

    index: int
    uuid: str
    bus: str
    util_percent: float | None = None
    memory_used_mb: float | None = None
    memory_total_mb: float | None = None
    power_w: float | None = None
    ecc_errors: int | None = None


class Gpus(msgspec.Struct, frozen=True, kw_only=True):
    """The devices, and which processes compute on them; `problem` where there is no answer."""

    devices: tuple[Device, ...] = ()
    users: dict[int, tuple[str, ...]] = {}
    """Pid -> uuids."""
    status: Status = Status.OK
    problem: str | None = None
    took_ms: float = 0.0


async def read(context: Context) -> Gpus:
    """Ask for devices and the processes on them."""
    done = await _query(context, f"--query-gpu={','.join(FIELDS)}")
    if not done.ok:
        status = {child.End.TIMEOUT: Status.TIMEOUT, child.End.MISSING: Status.ABSENT}.get(done.end, Status.FAILED)
        return Gpus(status=status, problem=done.describe(), took_ms=done.took_ms)
    apps = await _query(context, "--query-compute-apps=pid,gpu_uuid")
    return Gpus(devices=parse_devices(done.stdout), users=parse_users(apps.stdout), took_ms=done.took_ms)


async def _query(context: Context, question: str) -> child.Child:
    argv = ["nvidia-smi", question, "--format=csv,noheader,nounits"]
    return await context.host.run(argv, deadline_s=context.deadline.at_most(GPU_S), most_bytes=1 << 20)


def parse_devices(output: bytes) -> tuple[Device, ...]:
    """Return one record a line; `[N/A]`, `[Not Supported]` and errors are unknown."""
    devices: list[Device] = []
    for cells in csv.reader(output.decode("utf-8", "replace").splitlines(), skipinitialspace=True):
        known = {name: cell for name, cell in zip(FIELDS.values(), cells, strict=False) if _is_known(cell)}
        try:
            devices.append(msgspec.convert(known, Device, strict=False))
        except msgspec.ValidationError:
            continue
    return tuple(devices)


def _is_known(cell: str) -> bool:
    return bool(cell) and not cell.startswith("[")


def parse_users(output: bytes) -> dict[int, tuple[str, ...]]:
    """Return pid -> uuids of the devices it computes on."""
    users: dict[int, tuple[str, ...]] = {}
    for cells in csv.reader(output.decode("utf-8", "replace").splitlines(), skipinitialspace=True):
        if len(cells) == 2 and cells[0].isdigit():
            users[int(cells[0])] = (*users.get(int(cells[0]), ()), cells[1])
    return users


def taken(gpus: Gpus, pids: Iterable[int]) -> Taken:
    """Return the file of one instance: its own devices where the driver knows whose they are, else all."""
    if gpus.problem is not None:
        return Taken(name=NAME, status=gpus.status, error=gpus.problem, took_ms=gpus.took_ms)
    own = {uuid for pid in pids for uuid in gpus.users.get(pid, ())}
    chosen = [device for device in gpus.devices if not own or device.uuid in own]
    rows = [msgspec.structs.asdict(device) for device in chosen]
    return Taken(name=NAME, content=toml_text.document({}, {"gpu": rows}), took_ms=gpus.took_ms)
