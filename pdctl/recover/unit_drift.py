"""What else the restart of a unit would deploy: unit files, weights and package files newer than its process.

All of it is asked on the unit's host, so it holds for any interpreter and any engine there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from pdctl.collect import source
from pdctl.hosts.host import Host
from pdctl.managers.systemd import Unit
from pdctl.recover.drift import weights_of

ASK_S = 5.0
STAMP_S = 1.0
"""systemd tells a start to the second, cut off: what is newer by less may be older."""


def of(host: Host, unit: Unit, dialect: str) -> Iterator[str]:
    """Yield each difference in words. Reads only; some 100 ms."""
    if unit.text("NeedDaemonReload") == "yes":
        yield (
            f"unit {unit.name} changed on disk and systemd has not read it: a restart would start the old one; "
            "systemctl daemon-reload first, if the new one is meant"
        )
    if unit.pid is None or unit.started_at is None:
        return
    weights = weights_of(_command_line(host, unit.pid))
    named = [(path, "unit file") for path in unit.files] + [(path, "environment file") for path in unit.environment]
    named += [(str(weights), "weights")] if weights is not None else []
    stamps = _changed_at(host, [path for path, _ in named])
    for path, what in named:
        since_s = stamps.get(path, 0.0) - unit.started_at
        if since_s > STAMP_S:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stamps[path]))
            yield f"{what}: {path} changed {when}, {since_s:.0f} s after the process started"
    for name, package in source.packages_now(host, unit.pid, dialect, ASK_S).items():
        if package.newer_count:
            yield f"code: {name}: {package.newer_count} files newer than the process, e.g. {package.newer[0]}"


def _command_line(host: Host, pid: int) -> tuple[str, ...]:
    done = host.run_now(["cat", f"/proc/{pid}/cmdline"], deadline_s=ASK_S, most_bytes=1 << 20)
    return tuple(done.stdout.decode("utf-8", "replace").split("\0")) if done.ok else ()


def _changed_at(host: Host, paths: list[str]) -> dict[str, float]:
    """Return when each file was written, Unix time; of a folder its newest entry. What is not there is absent."""
    if not paths:
        return {}
    script = 'for path; do find "$path" -maxdepth 1 -printf "%T@ $path\\n" 2>/dev/null | sort -n | tail -n 1; done'
    done = host.run_now(["sh", "-c", script, "sh", *paths], deadline_s=ASK_S, most_bytes=1 << 20)
    lines = (line.partition(" ") for line in done.stdout.decode("utf-8", "replace").splitlines())
    return {path: float(stamp) for stamp, _, path in lines}
