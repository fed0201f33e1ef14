"""Where each instance of this host was seen last: its process and its log.

Of an instance that neither pdctl nor systemd runs nothing is left when it dies: nobody listens on its port, and a
server that has not come up yet looks the same. A process that was seen serving there, and is no more, decides it.
`STATE/NAME/sightings.json`, newest look; only instances of this host that others manage.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from pdctl.collect.host_processes import ProcessRow, Table
from pdctl.deployment.files import write_atomically
from pdctl.deployment.state import StateFolder
from pdctl.evidence.credentials import argv_without

_CLOCK_S = 60.0
"""How far the system's clock may have been set between two looks at one process."""


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """One process as it was seen serving an address; `cmdline` is without credentials."""

    pid: int
    start_ticks: int
    started_at: float
    """Unix time."""
    title: str
    cmdline: tuple[str, ...] = ()
    log: str | None = None
    """The file that it printed to."""
    space: str = ""
    """Which numbering of pids it was seen in: a container has its own."""

    def is_of(self, row: ProcessRow | None) -> bool:
        """Return whether a process is the one that was seen: a pid alone may be somebody else's by now."""
        if row is None or row.state in ("Z", "X"):
            return False
        return row.start_ticks == self.start_ticks and abs(row.started_at - self.started_at) < _CLOCK_S


Sightings = dict[str, Sighting]
"""URL -> the process that was seen there."""


def load(folder: StateFolder) -> Sightings:
    """Return what was kept; nothing where nothing was, or it cannot be read."""
    try:
        return msgspec.json.decode(_file(folder).read_bytes(), type=Sightings)
    except (OSError, msgspec.DecodeError):
        return {}


def note(folder: StateFolder, seen: Iterable[tuple[str, ProcessRow]]) -> None:
    """Keep the processes that serve these URLs now; of the other URLs what is known stays. Raises PdctlError."""
    before = load(folder)
    after = before | {url: _sighting(row) for url, row in seen}
    if after != before:
        folder.create()
        write_atomically(_file(folder), msgspec.json.encode(after).decode())


def is_certainly_gone(sighting: Sighting, table: Table) -> bool:
    """Return whether a complete look at this host's processes does not show the one that was seen.

    A user from whom those of others are hidden does not see the first process either.
    """
    is_complete = table.problem is None and table.of(1) is not None and sighting.space == _space()
    return is_complete and not sighting.is_of(table.of(sighting.pid))


def _sighting(row: ProcessRow) -> Sighting:
    return Sighting(
        pid=row.pid,
        start_ticks=row.start_ticks,
        started_at=row.started_at,
        title=row.title,
        cmdline=tuple(argv_without(row.cmdline)),
        log=row.stdout if row.stdout and row.stdout.startswith("/") else None,
        space=_space(),
    )


def _space() -> str:
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""


def _file(folder: StateFolder) -> Path:
    return folder.folder / "sightings.json"
