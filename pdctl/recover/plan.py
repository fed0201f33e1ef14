"""The whole plan of a restart. It is on the host's disk before the first signal, so the host can finish it alone."""

from __future__ import annotations

import os
import secrets
import time
from enum import StrEnum
from pathlib import Path

import msgspec

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.errors import PdctlError
from pdctl.managers.sight import Sight

FOLDER = "recoveries"
ORDER = (Role.PREFILL, Role.UNIFIED, Role.DECODE, Role.ROUTER)
"""In which targets are started: who is read from first."""


class Fate(StrEnum):
    """What becomes of a plan: settled once, by whoever is first."""

    CARRIED_OUT = "carried_out"
    CANCELLED = "cancelled"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One process to stop, named for good, and how to start it again."""

    instance: Instance
    pid: int | None = None
    """None: it does not run now, there is nothing to stop."""
    run: str | None = None
    """As `Sight.run`: no other process of the instance has the same."""
    restart: str = "no"
    """The shim's restart policy, kept."""

    @property
    def name(self) -> str:
        return self.instance.name


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the executor needs; nothing else is asked of the client once it runs."""

    id: str
    deployment: Deployment
    targets: tuple[Target, ...]
    """In the order of starting."""
    drain_s: float
    """Between SIGTERM and SIGKILL."""
    ready_timeout_s: float


def fresh_id() -> str:
    """Return a recovery's id: its time, and enough chance to be the only one."""
    return time.strftime("r%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(2)


def target_of(instance: Instance, seen: Sight) -> Target:
    """Name what runs now."""
    return Target(instance=instance, pid=seen.pid, run=seen.run, restart=seen.restart)


def in_starting_order(targets: tuple[Target, ...]) -> tuple[Target, ...]:
    """Return prefill before decode before the router."""
    return tuple(sorted(targets, key=lambda target: ORDER.index(target.instance.role)))


def has_changed(target: Target, seen: Sight) -> bool:
    """Return whether the instance is another process than the plan means.

    One that died meanwhile is none: that is what stopping it would have come to.
    """
    return seen.is_running and seen.run != target.run


def folder_of(state_folder: Path, recovery: str) -> Path:
    """Return where a recovery keeps its plan and its executor's output."""
    return state_folder / FOLDER / recovery


def save(plan: Plan, state_folder: Path) -> Path:
    """Put the plan on the disk for certain. Raises PdctlError."""
    path = folder_of(state_folder, plan.id) / "plan.json"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_suffix(".tmp")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(plan))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise PdctlError(f"cannot write the plan {path}: {error.strerror}", "nothing was stopped; make room") from error
    return path


def load(state_folder: Path, recovery: str) -> Plan:
    """Read a plan. Raises PdctlError where it is missing or damaged."""
    path = folder_of(state_folder, recovery) / "plan.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Plan)
    except (OSError, msgspec.DecodeError) as error:
        raise PdctlError(f"cannot read the plan {path}: {error}", "pdctl up starts what is missing") from error


def settle(state_folder: Path, recovery: str, wish: Fate) -> Fate:
    """Settle whether a plan is carried out, before its first signal; return what was settled, now or before.

    A link, as making one is either done or not: an executor that begins and a client that cancels cannot both win.
    Raises PdctlError.
    """
    path = folder_of(state_folder, recovery) / "fate"
    try:
        path.symlink_to(wish)
    except FileExistsError:
        return Fate(str(path.readlink()))
    except OSError as error:
        raise PdctlError(f"cannot write {path}: {error.strerror}", "nothing was stopped; make room") from error
    return wish
