"""What a collection got, what it could not get, and what it did to the system."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from pdctl.collect.fetch import Fetcher
from pdctl.collect.incident import IncidentDirectory
from pdctl.collect.records import Status


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """One file that is not there, or not whole."""

    instance: str
    file: str
    status: Status
    error: str


class Intrusion(msgspec.Struct, frozen=True, kw_only=True):
    """What the collection did to the system, as measured."""

    requests: int
    """GETs sent."""
    received_bytes: int
    attached: int
    """Times a process was attached to by py-spy."""
    longest_pause_ms: float
    """The longest standstill of one process; 0 without tier 2."""


class CollectionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one collection. `is_complete` False: it ran out of time or disk."""

    directory: Path
    took_s: float
    instances: int
    files: dict[str, int]
    """Status -> number of files."""
    missing: tuple[Missing, ...]
    """Without what does not exist in the first place (status absent)."""
    intrusion: Intrusion
    unwritten: str | None = None

    @property
    def is_complete(self) -> bool:
        """Return whether nothing timed out and everything could be written."""
        return self.unwritten is None and not any(item.status is Status.TIMEOUT for item in self.missing)


def summarise(directory: IncidentDirectory, fetcher: Fetcher, *, took_s: float) -> CollectionSummary:
    """Return the summary of a directory that was just filled."""
    every = [(instance, item) for instance, items in directory.taken.items() for item in items.values()]
    return CollectionSummary(
        directory=directory.path,
        took_s=took_s,
        instances=len(directory.taken),
        files=dict(Counter(item.status.value for _, item in every)),
        missing=tuple(
            Missing(instance=instance, file=item.name, status=item.status, error=item.error or "")
            for instance, item in every
            if item.status not in (Status.OK, Status.ABSENT)
        ),
        intrusion=Intrusion(
            requests=fetcher.requests,
            received_bytes=fetcher.received_bytes,
            attached=directory.attached,
            longest_pause_ms=directory.longest_pause_ms,
        ),
        unwritten=directory.unwritten,
    )
