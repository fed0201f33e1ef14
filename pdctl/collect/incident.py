"""The incident directory while it is being filled: every file is there as soon as it was taken.

An interrupt or a full disk leaves a directory that can be read: `topology.toml` is written first, and each
`capture.toml` says what is missing and why.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from pdctl.collect import records
from pdctl.collect.records import Status, Taken
from pdctl.deployment.model import Deployment, Instance
from pdctl.errors import PdctlError
from pdctl.evidence import toml_text
from pdctl.evidence.credentials import Credentials

SCHEMA = "pdctl.incident/1"
_TOPOLOGY_KEYS = (
    "name",
    "role",
    "dialect",
    "url",
    "host",
    "manager",
    "unit",
    "bootstrap_port",
    "metrics_url",
    "model",
    "version",
    "tp",
    "dp",
    "pp",
    "ep",
    "nodes",
    "transfer",
    "hosts",
)
_FIRST_SAMPLE = {"metrics.prev.txt": "metrics.txt", "loads.prev.json": "loads.json", "stacks.prev.json": "stacks.json"}


class IncidentDirectory:
    """Writes one incident, without credentials. Files are for this user alone: logs may quote prompts."""

    def __init__(self, path: Path, deployment: Deployment, credentials: Credentials | None = None) -> None:
        """Make the folders; `credentials` also knows the keys that are sent. Raises PdctlError if it is impossible."""
        self._credentials = credentials or Credentials()
        self.path = path
        self._deployment = deployment
        self._taken: dict[str, dict[str, Taken]] = {instance.name: {} for instance in deployment.instances}
        self._heads: dict[str, dict[str, object]] = {instance.name: {} for instance in deployment.instances}
        self._unwritten: str | None = None
        self.attached = 0
        """Attachments so far; files that were replaced count too."""
        self.longest_pause_ms = 0.0
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for instance in deployment.instances:
                (path / instance.name).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise PdctlError(
                f"cannot make {path}: {error.strerror}", "name another folder, or make room there"
            ) from error

    @property
    def taken(self) -> Mapping[str, Mapping[str, Taken]]:
        """Return instance -> file name -> what came of it, without the contents."""
        return self._taken

    @property
    def unwritten(self) -> str | None:
        """Return why some file could not be written, None if all could."""
        return self._unwritten

    def write_topology(self, at: datetime, prev_at: datetime | None) -> None:
        """Write what is deployed and when the two samples were taken. Raises PdctlError: without it nothing is read."""
        path = self.path / "topology.toml"
        if not self._write(path, topology_document(self._deployment, at, prev_at)) and not path.exists():
            raise PdctlError(f"{self._unwritten}", "make room there, or make the folder writable")

    def add(self, instance: str, taken: Iterable[Taken]) -> None:
        """Write the files at once and remember how they came about; the bytes are not kept."""
        for item in taken:
            status, error = item.status, item.error
            if item.content is not None and not self._write(self.path / instance / item.name, item.content):
                status, error = Status.FAILED, self._unwritten
            self.attached += item.attached or 0
            self.longest_pause_ms = max(self.longest_pause_ms, item.pause_ms or 0.0)
            self._taken[instance][item.name] = msgspec.structs.replace(item, content=None, status=status, error=error)

    def write(self, name: str, content: bytes) -> None:
        """Write a file that belongs to no single instance."""
        self._write(self.path / name, content)

    def set_clock(self, instance: str, *, offset_ms: float | None, log_utc_offset: timedelta | None) -> None:
        """Say how an instance's clock and its logs' zone differ from UTC here; None is unknown."""
        self._heads[instance] = {
            "clock_offset_ms": offset_ms,
            "log_utc_offset": _offset_text(log_utc_offset) if log_utc_offset is not None else None,
        }

    def write_captures(self) -> None:
        """Write every capture.toml."""
        for name, items in self._taken.items():
            rows = [self._capture_row(items, item) for item in sorted(items.values(), key=lambda item: item.name)]
            self._write(self.path / name / "capture.toml", toml_text.document(self._heads[name], {"file": rows}))

    def _capture_row(self, items: Mapping[str, Taken], item: Taken) -> dict[str, object]:
        first = next((items[prev] for prev, last in _FIRST_SAMPLE.items() if last == item.name and prev in items), None)
        return {
            "name": item.name,
            "at": item.at,
            "prev_at": first.at if first else None,
            "took_ms": item.took_ms,
            "status": item.status.value,
            "error": item.error,
            "mode": item.mode.value if item.mode else None,
            "pause_ms": item.pause_ms,
            "attached": item.attached,
            "truncated": item.truncated,
            "covers_since": item.covers_since,
        }

    def _write(self, path: Path, content: bytes) -> bool:
        """Write or replace a file; a full disk costs this file, not the rest.

        Every byte of an incident passes here, so no collector can forget to mask.
        """
        content = self._credentials.without(content)
        # Only what is there already can be lost by half a write.
        draft = path.with_name(f".{path.name}.part") if path.exists() else path
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            if draft is not path:
                draft.replace(path)
        except OSError as error:
            self._unwritten = f"{path} could not be written: {error.strerror}"
            draft.unlink(missing_ok=True)
            return False
        return True


def topology_document(deployment: Deployment, at: datetime, prev_at: datetime | None) -> bytes:
    """Return `topology.toml`: what is deployed, and when its two samples were taken."""
    head = {"schema": SCHEMA, "captured_at": at, "captured_prev_at": prev_at, "name": deployment.name}
    return toml_text.document(head, {"instance": [_topology_row(instance) for instance in deployment.instances]})


def _topology_row(instance: Instance) -> dict[str, object]:
    fields = msgspec.structs.asdict(instance)
    return {key: fields[key] for key in _TOPOLOGY_KEYS if fields[key] not in (None, ())}


def _offset_text(offset: timedelta) -> str:
    minutes = round(offset.total_seconds() / 60)
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def local_utc_offset() -> timedelta:
    """Return how far this host's local time is ahead of UTC now."""
    return records.now().astimezone().utcoffset() or timedelta()
