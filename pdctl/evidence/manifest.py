"""What a snapshot holds: every file with its size and sha256, what is missing and why, what taking it did."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

import msgspec

from pdctl.errors import PdctlError

FILE = "manifest.json"
SCHEMA = "pdctl.manifest/1"
_BLOCK = 1 << 20


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file, below the incident directory."""

    path: str
    size_bytes: int
    sha256: str


class MissingEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What could not be taken, or not whole."""

    path: str
    status: str
    error: str


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """What was concluded from the snapshot when it was taken: told to whoever meets the same symptom again."""

    incident_id: str
    verdict: str
    codes: tuple[str, ...]
    """Causes that stood, best first."""
    subjects: tuple[str, ...] = ()
    """Instances that the first of them was on."""
    symptoms: tuple[str, ...]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The whole. `is_complete` False: time or room ran out, or it was interrupted."""

    schema: str = SCHEMA
    deployment: str
    tool_version: str
    captured_at: str
    """UTC, ISO 8601."""
    took_s: float
    is_complete: bool
    requests: int = 0
    """GETs that were sent to the system."""
    received_bytes: int = 0
    attached: int = 0
    """Times a process was attached to."""
    longest_pause_ms: float = 0.0
    files: tuple[FileEntry, ...] = ()
    missing: tuple[MissingEntry, ...] = ()
    conclusion: Conclusion | None = None
    """None where nothing was judged."""


def files_of(directory: Path) -> tuple[FileEntry, ...]:
    """Hash every file of a directory but the manifest itself; links are left out."""
    found = []
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_file() and not path.is_symlink() and name != FILE:
            with path.open("rb") as file:
                found.append(FileEntry(path=name, size_bytes=path.stat().st_size, sha256=sha256_of(file)))
    return tuple(found)


def write(directory: Path, manifest: Manifest) -> None:
    """Put the manifest into the directory, last of all. Raises PdctlError."""
    draft = directory / f".{FILE}.part"
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        draft.replace(directory / FILE)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise PdctlError(
            f"cannot write {directory / FILE}: {error.strerror}", "the files beside it can be read"
        ) from error


def read(directory: Path) -> Manifest | None:
    """Return a directory's manifest; None where there is none that can be read."""
    try:
        return msgspec.json.decode((directory / FILE).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def damaged(directory: Path, manifest: Manifest) -> tuple[str, ...]:
    """Return one line for each file that is not what the manifest says."""
    now = {entry.path: entry for entry in files_of(directory)}
    lines = [f"{entry.path}: missing" for entry in manifest.files if entry.path not in now]
    lines += [f"{e.path}: changed" for e in manifest.files if e.path in now and now[e.path].sha256 != e.sha256]
    return tuple(sorted(lines))


def sha256_of(stream: BinaryIO) -> str:
    """Return the hash of what is left of a stream; memory stays flat."""
    digest = hashlib.sha256()
    while block := stream.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()
