"""A deployment of stand-in engines: real processes and HTTP, no model (see tests/fakes/standin_engine.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pdctl.deployment import files
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.deployment.state import StateFolder
from pdctl.managers import shim
from tests.cli import pdctl_process
from tests.ports import free_ports

ENGINE = Path(__file__).parents[1] / "fakes" / "standin_engine.py"
ROLES = {"prefill-0": (Role.PREFILL, "pdctl"), "decode-0": (Role.DECODE, "pdctl"), "router": (Role.ROUTER, "smg")}


@dataclass
class Standins:
    """A folder with a pd.toml, and its own state folder."""

    home: Path
    ports: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.ports = dict(zip(ROLES, free_ports(len(ROLES)), strict=True))
        self.behave()

    def behave(self, **behaviours: str) -> None:
        """Write pd.toml anew; keys are names with `_` for `-`, values what that engine does."""
        files.save(
            Deployment(
                name="standins",
                model="m",
                instances=tuple(
                    Instance(
                        name=name,
                        role=role,
                        dialect=dialect,
                        url=f"http://127.0.0.1:{self.ports[name]}",
                        manager="shim",
                        start=(
                            sys.executable,
                            *("-S", str(ENGINE), str(self.ports[name])),
                            *behaviours.get(name.replace("-", "_"), "").split(),
                        ),
                    )
                    for name, (role, dialect) in ROLES.items()
                ),
            ),
            self.home / "pd.toml",
        )

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run pdctl in the folder."""
        return pdctl_process.run(self.home, *arguments, **environment)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start pdctl in the folder."""
        return pdctl_process.start(self.home, *arguments)

    def up(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Stand-ins generate nothing, so no request is sent to them."""
        return self.run("up", "--no-probe", *arguments)

    def status(self) -> dict[str, dict[str, object]]:
        """Return what `status -o json` says, by instance."""
        rows = json.loads(self.run("status", "-o", "json").stdout)["instances"]
        return {row["name"]: row for row in rows}

    def pids(self) -> dict[str, int | None]:
        """Return the pid of each instance that lives."""
        return {name: shim.observe(self.folder.paths(name)).pid for name in ROLES}

    def leftovers(self) -> list[int]:
        """Return every process of this deployment that exists."""
        return [pid for name in ROLES for pid in shim.leftovers(self.folder.paths(name))]

    @property
    def folder(self) -> StateFolder:
        return StateFolder(self.home / "state" / "pdctl", "standins")


def standins_in(home: Path) -> Iterator[Standins]:
    """Give a deployment, and leave nothing of it running."""
    deployment = Standins(home)
    yield deployment
    for name in ROLES:
        shim.ask_to_stop(deployment.folder.paths(name))
        shim.await_stopped(deployment.folder.paths(name), 0.0)
