"""Real engines and the real router in the units that `pdctl up --print-units` prints, in a booted system."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli import pdctl_process
from tests.machines.booted import REPOSITORY, Booted
from tests.machines.ssh_server import SshHosts
from tests.serving.rig import ENVIRONMENT
from tests.serving.served import port_base
from tests.waiting import eventually

UNIT = "pd-default@{}.service"


@dataclass
class ServedBySystemd:
    """A deployment of units; `home` has its pd.toml."""

    machine: Booted
    home: Path

    def install(self, model: Path) -> None:
        """Print the units, install them as a person would, and start the target."""
        printed = self.json("up", "--print-units", "--model", str(model), "--port-base", str(port_base()))
        files = {item["path"]: item["content"] for item in printed["files"]}
        (self.home / "pd.toml").write_text(files.pop("pd.toml"))
        # The package is not installed in there; everything else is as printed.
        path = f"/etc/systemd/system/{printed['target'].replace('.target', '@.service')}.d/checkout.conf"
        words = {"PYTHONPATH": str(REPOSITORY), **ENVIRONMENT}
        files[path] = "[Service]\n" + "".join(f"Environment={name}={value}\n" for name, value in words.items())
        self.machine.install(files.items())
        self.machine.systemctl("start", "--no-block", printed["target"])

    def pdctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run pdctl in there, where the units are."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=200)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start pdctl in there."""
        folders = {"HOME": str(self.home), "XDG_STATE_HOME": str(self.home / "state")}
        environment = {"PYTHONPATH": str(REPOSITORY), "COLUMNS": "100", **folders, **ENVIRONMENT}
        words = [f"{name}={value}" for name, value in environment.items()]
        command = self.machine.argv("env", "-C", str(self.home), *words, sys.executable, "-m", "pdctl", *arguments)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def json(self, *arguments: str) -> Any:
        """Return what a command says with `-o json`."""
        done = self.pdctl(*arguments, "-o", "json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def pdctl_from_outside(self, ssh: SshHosts, *arguments: str) -> Any:
        """Run pdctl on this machine, which reaches the units by ssh alone, with a state of its own; return its JSON."""
        home = self.home / "outside"
        home.mkdir(exist_ok=True)
        text = (self.home / "pd.toml").read_text()
        (home / "pd.toml").write_text(text.replace('manager = "systemd"', 'manager = "systemd"\nhost = "ssh:box"'))
        process = pdctl_process.start(home, *arguments, "-o", "json", **{**ENVIRONMENT, "PATH": ssh.path})
        out, err = process.communicate(timeout=200)
        assert out, err
        return json.loads(out)

    def until_well(self) -> None:
        """Wait until every instance is."""
        eventually(lambda: self.pdctl("status").returncode == 0, 90)

    def invocation(self, name: str) -> str:
        """Return what names the present run of an instance."""
        return self.machine.shown(UNIT.format(name), "InvocationID")

    def freeze(self, name: str) -> None:
        """SIGSTOP an instance's process and its ranks."""
        pid = self.machine.pid(UNIT.format(name))
        done = self.machine.run("sh", "-c", f"kill -STOP {pid} $(pgrep -P {pid})")
        assert done.returncode == 0, done.stderr
