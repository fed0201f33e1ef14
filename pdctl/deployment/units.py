"""systemd units for a deployment: written for a person to read and install; pdctl itself never installs one.

One template for all engines, one drop-in an instance with its command, one target that starts and stops all. An engine
that may not survive a peer's restart is `PartOf=` that peer: systemd then restarts both, whoever asks, itself included.
"""

from __future__ import annotations

import getpass
import re
import shutil
from collections.abc import Iterable
from pathlib import PurePosixPath

import msgspec

from pdctl.deployment import files
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.deployment.survival import victims
from pdctl.errors import UsageError
from pdctl.managers.shim import STOP_DEADLINE_S

FOLDER = PurePosixPath("/etc/systemd/system")
TELLS_SYSTEMD = ("pdctl",)
"""Dialects whose engines say READY=1 and WATCHDOG=1 (sd_notify)."""
WATCHDOG_S = 30
START_S = 900
"""Weights of a large model come from disk or network."""
KILL_AFTER_S = int(STOP_DEADLINE_S) + 5
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")


class UnitFile(msgspec.Struct, frozen=True):
    """One file and where it belongs."""

    path: str
    content: str


def unit_files(deployment: Deployment) -> tuple[UnitFile, ...]:
    """Return target, template, drop-ins, and the deployment file by which pdctl then finds the units.

    Raises UsageError for an instance without a start command.
    """
    started = tuple(item for item in deployment.instances if item.host == "local")
    for item in started:
        if item.start is None:
            raise UsageError(
                f"{item.name} has no start command, so there is no unit for it",
                "add `start = [...]` to that instance in the deployment file",
            )
    units = tuple(
        # The unit owns the command from now on; a copy here would only grow old.
        msgspec.structs.replace(item, manager="systemd", unit=unit_of(deployment, item), start=None, env={})
        if item in started
        else item
        for item in deployment.instances
    )
    managed = msgspec.structs.replace(deployment, instances=units)
    return (
        UnitFile(str(FOLDER / target_of(deployment)), _target(deployment, started)),
        UnitFile(str(FOLDER / f"{_stem(deployment)}@.service"), _template(deployment)),
        *(UnitFile(_drop_in_path(deployment, item), _drop_in(deployment, item)) for item in started),
        UnitFile("pd.toml", files.render(managed)),
    )


def unit_of(deployment: Deployment, instance: Instance) -> str:
    """Return the unit of an instance."""
    # In an instance's part of a unit name `-` stands for `/`, but %i gives it back as it is.
    return f"{_stem(deployment)}@{instance.name}.service"


def target_of(deployment: Deployment) -> str:
    """Return the target that ties them all."""
    return f"{_stem(deployment)}.target"


def _stem(deployment: Deployment) -> str:
    return f"pd-{deployment.name}"


def _target(deployment: Deployment, started: Iterable[Instance]) -> str:
    wants = "".join(f"Wants={unit_of(deployment, item)}\n" for item in started)
    return f"""\
[Unit]
Description=All of deployment {deployment.name} (model {_without_specifiers(deployment.model)})
{wants}
[Install]
WantedBy=multi-user.target
"""


def _template(deployment: Deployment) -> str:
    return f"""\
[Unit]
Description=%i of deployment {deployment.name}
PartOf={target_of(deployment)}
Wants=network-online.target
After=network-online.target
# One that dies again and again is left down, so that somebody looks at it.
StartLimitIntervalSec=600
StartLimitBurst=3

[Service]
User={getpass.getuser()}
# SIGTERM goes to the main process alone, which drains and takes its ranks along; what is left then is killed.
KillMode=mixed
TimeoutStopSec={KILL_AFTER_S}
TimeoutStartSec={START_S}
Restart=on-failure
RestartSec=5
# A rank that the kernel kills for want of memory must not leave the others standing.
OOMPolicy=kill
# NIXL and RDMA pin the KV memory; a router and an engine have a socket a request.
LimitMEMLOCK=infinity
LimitNOFILE=1048576
TasksMax=infinity
# A core of an engine is as large as its memory.
LimitCORE=0

[Install]
WantedBy={target_of(deployment)}
"""


def _drop_in_path(deployment: Deployment, instance: Instance) -> str:
    return str(FOLDER / f"{unit_of(deployment, instance)}.d" / "command.conf")


def _drop_in(deployment: Deployment, instance: Instance) -> str:
    assert instance.start is not None, "checked by unit_files"
    lines = _ties(deployment, instance)
    lines += ["[Service]"]
    tells = instance.dialect in TELLS_SYSTEMD and instance.role is not Role.ROUTER
    if tells:
        lines += ["Type=notify", "NotifyAccess=main", f"WatchdogSec={WATCHDOG_S}"]
    else:
        lines += ["# No watchdog: it does not tell systemd that it lives.", "Type=exec"]
    lines += [f"Environment={_quoted(f'{name}={value}')}" for name, value in instance.env.items()]
    program, *arguments = instance.start
    words = [_absolute(program), *arguments]
    lines.append(f"ExecStart={' '.join(_command_word(word) for word in words)}")
    return "\n".join(lines) + "\n"


def _ties(deployment: Deployment, instance: Instance) -> list[str]:
    """Return the lines that restart this instance with every peer whose restart it may not survive."""
    ties = [
        (peer, source)
        for peer in deployment.instances
        for victim, source in victims(deployment, peer)
        if victim.name == instance.name
    ]
    if not ties and instance.role in (Role.PREFILL, Role.DECODE):
        return ["# It survives a restart of its peers, by pdctl's capability table: not tied to them.", ""]
    if not ties:
        return []
    lines = ["[Unit]"]
    for peer, source in ties:
        lines += [
            f"# It may not survive a restart of {peer.name}: {source}",
            f"PartOf={unit_of(deployment, peer)}",
        ]
    return [*lines, ""]


def _absolute(program: str) -> str:
    return program if program.startswith("/") else shutil.which(program) or program


def _command_word(word: str) -> str:
    return _quoted(word).replace("$", "$$")


def _quoted(word: str) -> str:
    """Return a word as systemd.syntax(7) reads it back: double quotes, C escapes, `%%` for `%`."""
    escaped = _without_specifiers(word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
    return escaped if _PLAIN.fullmatch(word) else f'"{escaped}"'


def _without_specifiers(text: str) -> str:
    return text.replace("%", "%%")
