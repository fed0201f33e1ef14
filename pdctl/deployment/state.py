"""Where a deployment's state lives: `$XDG_STATE_HOME/pdctl/NAME/`. Plain files, no daemon.

last                     name of the deployment used last
NAME/deployment.toml     what was started or attached
NAME/sightings.json      which processes were seen serving, of instances that others manage
NAME/names               instance names, one a line; shells complete from it
NAME/lock                held by the one pdctl that starts or stops
NAME/instances/I.json    written by the shim of instance I
NAME/logs/I.log          what I prints; I.log.1 is older
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pdctl.deployment import files
from pdctl.deployment.lock_file import held
from pdctl.deployment.model import Deployment
from pdctl.errors import CannotTell, PdctlError, UsageError
from pdctl.managers import shim

HERE = Path("pd.toml")
"""A deployment file in the working directory is taken without being named."""


def state_root(environ: Mapping[str, str] = os.environ) -> Path:
    """Return pdctl's folder below $XDG_STATE_HOME (default ~/.local/state)."""
    home = environ.get("XDG_STATE_HOME") or ""
    # The XDG specification: a relative path is invalid and must be ignored.
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "state"
    return base / "pdctl"


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The state of one deployment on this machine."""

    root: Path
    name: str

    @property
    def folder(self) -> Path:
        return self.root / self.name

    @property
    def deployment_file(self) -> Path:
        return self.folder / "deployment.toml"

    def paths(self, instance: str) -> shim.Paths:
        """Return where the shim of an instance keeps its record and its log."""
        return shim.Paths(self.folder / "instances" / f"{instance}.json", self.folder / "logs" / f"{instance}.log")

    def create(self) -> None:
        """Make the folders, readable by the user alone: logs may quote prompts."""
        try:
            for folder in (self.root, self.folder, self.folder / "instances", self.folder / "logs"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise PdctlError(
                f"cannot make the state folder {self.folder}: {error.strerror}",
                "set XDG_STATE_HOME to a folder that you may write",
            ) from error

    def save(self, deployment: Deployment) -> None:
        """Keep what is deployed, and make it the deployment used last."""
        self.keep(deployment)
        files.write_atomically(self.root / "last", f"{self.name}\n")

    def keep(self, deployment: Deployment) -> None:
        """Keep what is deployed, so that `--name` finds it. Raises PdctlError."""
        self.create()
        files.save(deployment, self.deployment_file)
        names = "".join(f"{instance.name}\n" for instance in deployment.instances)
        files.write_atomically(self.folder / "names", names)

    def load(self) -> Deployment | None:
        """Return what was kept; None where nothing was."""
        return files.load(self.deployment_file) if self.deployment_file.exists() else None

    @contextmanager
    def locked(self, on_wait: Callable[[str], None]) -> Iterator[None]:
        """Be the only pdctl that starts or stops here; `on_wait` is told once who is waited for. Raises PdctlError."""

        def wait(holder: str) -> None:
            on_wait(f"waiting for another pdctl (pid {holder or 'unknown'}) that works on {self.name!r}")

        self.create()
        # Not inherited by the shims: they would keep the lock for as long as the engines live.
        with held(self.folder / "lock", str(os.getpid()), wait):
            yield


def last_used(root: Path) -> str | None:
    """Return the name of the deployment used last."""
    try:
        name = (root / "last").read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return name if files.NAME.fullmatch(name) else None


def chosen(name: str | None, file: Path | None, root: Path) -> Deployment:
    """Return the deployment a command is about: --file, --name, ./pd.toml, or the one used last.

    Raises CannotTell where nothing is deployed.
    """
    if name is not None and file is not None:
        raise UsageError("--name and --file both name a deployment", "give one of them")
    if file is not None:
        return files.load(file)
    if name is None and HERE.exists():
        return files.load(HERE)
    wanted = name or last_used(root)
    if wanted is not None and not files.NAME.fullmatch(wanted):
        raise UsageError(f"--name {wanted!r} is not a deployment's name", "use letters, digits, '.', '_', '-'")
    deployment = StateFolder(root, wanted).load() if wanted else None
    if deployment is None:
        raise CannotTell(
            f"no deployment {wanted!r} is known here" if wanted else "nothing is deployed here",
            "start one with `pdctl up`, or name what runs with `pdctl attach URL...`",
        )
    return deployment
