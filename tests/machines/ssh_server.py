"""Real sshd processes on the loopback, and a real ssh that knows them by name.

OpenSSH finds its configuration by the password file, not by $HOME: the `ssh` on the PATH of a test is the system's with
`-F`, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.machines.booted import Booted
from tests.machines.requirements import require
from tests.ports import free_port
from tests.waiting import eventually


@dataclass
class SshHosts:
    """Some hosts that are all this machine, each with an sshd of its own."""

    folder: Path
    servers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Return a PATH whose ssh knows the hosts."""
        return f"{self.folder / 'bin'}:{os.environ['PATH']}"

    def prepare(self) -> None:
        """Make the keys and the client's side."""
        for name in ("host_key", "id"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)], check=True)
        shutil.copy(self.folder / "id.pub", self.folder / "authorized_keys")
        (self.folder / "known_hosts").touch()
        (self.folder / "ssh_config").touch()
        ssh = self.folder / "bin" / "ssh"
        ssh.parent.mkdir()
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder / "ssh_config"} "$@"\n')
        ssh.chmod(0o755)
        Path("/run/sshd").mkdir(exist_ok=True)

    def add(
        self,
        name: str,
        *,
        remote_path: str = "/usr/bin:/bin:/usr/sbin:/sbin",
        is_known: bool = True,
        machine: Booted | None = None,
        network: int | None = None,
    ) -> None:
        """Start a server that the name leads to, in a booted system or here; commands there have `remote_path`.

        With `network`, the pid of a process, it runs in that process's network, which nothing else reaches.
        """
        port = free_port()
        config = self.folder / f"sshd_{name}.conf"
        config.write_text(
            f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {self.folder / 'host_key'}\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {self.folder / 'authorized_keys'}\nPasswordAuthentication no\nStrictModes no\n"
            f"PermitRootLogin prohibit-password\nSetEnv PATH={remote_path}\nLogLevel VERBOSE\n"
        )
        # sshd wants to be called by its whole path.
        argv = [str(shutil.which("sshd")), "-D", "-f", str(config), "-E", str(self.log(name))]
        if machine is not None:
            machine.run("mkdir", "-p", "/run/sshd")
        if network is None:
            self.servers[name] = subprocess.Popen(machine.argv(*argv) if machine is not None else argv)
            eventually(lambda: "Server listening" in self.said(name))
        key = (self.folder / "host_key.pub").read_text()
        with (self.folder / "ssh_config").open("a") as file:
            file.write(
                f"Host {name}\n HostName 127.0.0.1\n Port {port}\n IdentityFile {self.folder / 'id'}\n"
                f" IdentitiesOnly yes\n UserKnownHostsFile {self.folder / 'known_hosts'}\n"
                " GlobalKnownHostsFile none\n ForwardAgent yes\n StrictHostKeyChecking no\n"
            )
            if network is not None:
                # No port leads there: one sshd a connection, over its standard input.
                file.write(f" ProxyCommand nsenter -t {network} --net {' '.join([argv[0], '-i', *argv[2:]])}\n")
        if is_known:
            with (self.folder / "known_hosts").open("a") as file:
                file.write(f"[127.0.0.1]:{port} {key}")

    def log(self, name: str) -> Path:
        """Return a server's log file."""
        return self.folder / f"sshd_{name}.log"

    def said(self, name: str) -> str:
        """Return what a server has logged."""
        return self.log(name).read_text() if self.log(name).exists() else ""

    def freeze(self, name: str) -> None:
        """Let a server accept connections and say nothing."""
        self.servers[name].send_signal(signal.SIGSTOP)


@contextlib.contextmanager
def ssh_hosts(folder: Path) -> Iterator[SshHosts]:
    """Give hosts to add to, and leave no server running."""
    require("sshd", "ssh", "ssh-keygen")
    hosts = SshHosts(folder)
    hosts.prepare()
    try:
        yield hosts
    finally:
        for server in hosts.servers.values():
            server.kill()
            server.wait()
