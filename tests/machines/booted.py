"""A real systemd with journald and D-Bus: this machine's files below an overlay, booted by systemd-nspawn.

It shares the network of the test, so that an engine in a unit answers on the loopback. Its units are our own to write.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.machines.requirements import require
from tests.waiting import eventually

REPOSITORY = Path(__file__).parents[2]
MASKED = (
    *("ssh", "prometheus", "prometheus-alertmanager", "systemd-update-utmp", "systemd-tmpfiles-setup"),
    *("console-getty", "getty@tty1", "systemd-logind"),
)
UNITS = Path("etc/systemd/system")


@dataclass
class Booted:
    """One running system."""

    root: Path
    """Its files, as seen from here."""
    home: Path
    """The same folder here and in there."""
    leader: int
    """Its PID 1, as seen from here."""

    def argv(self, *command: str) -> tuple[str, ...]:
        """Return what runs a command in there."""
        return ("nsenter", "-t", str(self.leader), "-a", *command)

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command in there to its end."""
        words = [f"{name}={value}" for name, value in environment.items()]
        return subprocess.run(
            self.argv("env", *words, *command), capture_output=True, text=True, timeout=120, check=False
        )

    def write(self, path: str, content: str) -> None:
        """Write a file in there."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)

    def install(self, files: Iterable[tuple[str, str]]) -> None:
        """Write units and let systemd read them."""
        for path, content in files:
            self.write(path, content)
        self.systemctl("daemon-reload")

    def systemctl(self, *arguments: str) -> str:
        """Run systemctl; raises AssertionError with its words."""
        done = self.run("systemctl", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def shown(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.systemctl("show", "--value", f"--property={name}", unit).strip()

    def pid(self, unit: str) -> int:
        """Return the main pid of a unit as it is called in there."""
        return int(self.shown(unit, "MainPID"))


@contextlib.contextmanager
def booted(home: Path, name: str) -> Iterator[Booted]:
    """Boot one, and leave nothing of it. `home` is visible in there under the same path."""
    require("systemd-nspawn", "nsenter", "journalctl")
    with _overlay(home) as root:
        argv = ["systemd-nspawn", "-q", f"--directory={root}", "--register=no", "--keep-unit", "--boot"]
        argv += [f"--machine={name}", "--link-journal=no", "--console=pipe"]
        # What lies on other file systems than the root, or below /tmp, which is empty in there.
        argv += [f"--bind={path}" for path in dict.fromkeys((str(home), str(REPOSITORY), sys.prefix))]
        with (home / "nspawn.log").open("wb") as log:
            nspawn = subprocess.Popen(
                [*argv, "systemd.unit=basic.target"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            leader = eventually(lambda: _leader(nspawn.pid))
            machine = Booted(root, home, leader)
            eventually(lambda: machine.run("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"))
            yield machine
        finally:
            nspawn.send_signal(signal.SIGTERM)
            try:
                nspawn.wait(20)
            except subprocess.TimeoutExpired:
                nspawn.kill()
                nspawn.wait()


@contextlib.contextmanager
def _overlay(home: Path) -> Iterator[Path]:
    base = home / "machine"
    base.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(base), "-o", "size=1g"], check=True)
    try:
        upper, work, root = (base / name for name in ("upper", "work", "root"))
        for folder in (upper, work, root):
            folder.mkdir()
        options = f"lowerdir=/,upperdir={upper},workdir={work}"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(root)], check=True)
        try:
            _prepare(root)
            yield root
        finally:
            subprocess.run(["umount", "-l", str(root)], check=True)
    finally:
        subprocess.run(["umount", "-l", str(base)], check=True)


def _prepare(root: Path) -> None:
    identity = root / "etc/machine-id"
    identity.unlink(missing_ok=True)
    identity.touch()
    (root / "var/log/journal").mkdir(parents=True, exist_ok=True)
    (root / UNITS).mkdir(parents=True, exist_ok=True)
    for name in MASKED:
        link = root / UNITS / f"{name}.service"
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")


def _leader(nspawn: int) -> int | None:
    """Return PID 1 of what nspawn has started, once it is systemd."""
    children = Path(f"/proc/{nspawn}/task/{nspawn}/children").read_text().split()
    for child in children:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                return int(child)
    return None
