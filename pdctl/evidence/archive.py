"""The shared archive: redacted, `.tar.gz`, for its owner alone; and reading one without being hurt by it.

Each file is a gzip member of its own, so whatever interrupts the writing, what was finished can be read.
"""

from __future__ import annotations

import contextlib
import getpass
import gzip
import io
import os
import secrets
import socket
import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import msgspec

from pdctl.errors import PdctlError, UsageError
from pdctl.evidence import manifest
from pdctl.evidence.credentials import ENVIRONMENT_KEY
from pdctl.evidence.folder import Files
from pdctl.evidence.manifest import Manifest
from pdctl.evidence.redaction import Redaction

MOST_FILES = 10_000
MOST_BYTES = 1 << 30
"""Unpacked. An archive that grows beyond is a bomb, not evidence."""
_TAR_END = b"\0" * 1024
_BLOCK = 512


def share(kept: Path, out: Path | None = None, *, known_secrets: tuple[str, ...] = ()) -> Path:
    """Write the redacted archive of a kept directory (or of an older archive) and return its path.

    By default it lies beside its source. The mapping of the pseudonyms stays with a kept directory. Raises
    PdctlError; an archive that could not be finished is readable up to the file that failed, and is named.
    """
    files = read(kept)
    redaction = _redaction(files, known_secrets)
    shared = redaction.files()
    shared["redaction.json"] = msgspec.json.encode({"counts": dict(redaction.counts), "tool": "pdctl"})
    target = out or kept.with_name(f"{kept.name.removesuffix('.tar.gz')}-shared.tar.gz")
    write(target, _manifest(files, shared, redaction), shared)
    if kept.is_dir():
        mapping = {"mapping": dict(redaction.mapping), "counts": dict(redaction.counts)}
        _write_private(kept / "redaction.json", msgspec.json.encode(mapping))
    return target


def shared_files(kept: Path) -> dict[str, bytes]:
    """Return what the shared archive of a kept directory or archive would hold, without writing anything."""
    return _redaction(read(kept)).files()


def _redaction(files: Files, known_secrets: tuple[str, ...] = ()) -> Redaction:
    return Redaction(files, secrets.token_bytes(16), (*known_secrets, *_environment_secrets()), _host_names())


def write(target: Path, inventory: Manifest, files: Files) -> None:
    """Write the manifest and then every file. Raises PdctlError."""
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as error:
        raise PdctlError(f"cannot write {target}: {error.strerror}", "name another place with --out") from error
    ordered = [(manifest.FILE, msgspec.json.encode(inventory)), *sorted(files.items(), key=lambda item: len(item[1]))]
    finished = 0
    # Unbuffered: closing must not try again to write what did not fit.
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        try:
            for name, data in ordered:
                _write_all(file, gzip.compress(_entry(name, data), 6))
                finished = file.tell()
            _write_all(file, gzip.compress(_TAR_END))
        except BaseException as error:
            _cut(target, finished)
            if isinstance(error, OSError):
                raise PdctlError(
                    f"{target} is not complete ({error.strerror}): it can be read, its manifest names what is missing",
                    "make room, then `pdctl redact` makes it anew",
                ) from error
            raise


def read(path: Path) -> dict[str, bytes]:
    """Return the files of an incident directory or archive. Raises UsageError for what no honest one contains."""
    if path.is_dir():
        return {
            item.relative_to(path).as_posix(): item.read_bytes()
            for item in sorted(path.rglob("*"))
            if item.is_file() and not item.is_symlink()
        }
    if not path.is_file():
        raise UsageError(f"{path} is neither a folder nor an archive", "give what `pdctl snapshot` printed")
    return _members(path)


def _members(path: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    budget = MOST_BYTES
    try:
        # tarfile's own "r|gz" ends after the first gzip member.
        # Small blocks: a larger one could reach into a member that was cut, and lose those before it.
        with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK) as archive:
            for member in archive:
                _refuse_dangerous(path, member)
                if member.isdir():
                    continue
                budget -= member.size
                if budget < 0 or len(files) >= MOST_FILES:
                    raise UsageError(
                        f"{path} unpacks to more than {MOST_BYTES >> 20} MB or {MOST_FILES} files", "it is no snapshot"
                    )
                content = archive.extractfile(member)
                files[str(PurePosixPath(member.name))] = content.read() if content else b""
    except (tarfile.TarError, EOFError, OSError) as error:
        # Cut short: what came before can be used. Nothing at all is another matter.
        if not files:
            raise UsageError(f"{path} is no readable archive: {error}", "give what `pdctl snapshot` printed") from error
    return files


def _refuse_dangerous(path: Path, member: tarfile.TarInfo) -> None:
    parts = PurePosixPath(member.name).parts
    if member.name.startswith("/") or ".." in parts:
        raise UsageError(f"{path} wants to write to {member.name!r}, outside its folder", "do not unpack it")
    if not (member.isfile() or member.isdir()):
        raise UsageError(f"{path} has a link or device, {member.name!r}", "do not unpack it")


def missing(files: Files) -> tuple[str, ...]:
    """Return the files that the manifest names and that are not there: the archive was cut short."""
    try:
        inventory = msgspec.json.decode(files.get(manifest.FILE, b""), type=Manifest)
    except msgspec.DecodeError:
        return ()
    return tuple(entry.path for entry in inventory.files if entry.path not in files)


def _entry(name: str, data: bytes) -> bytes:
    """Return one tar entry: header, content, padding. No owner, no time: they would tell who and where."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mode = 0o600
    padding = b"\0" * (-len(data) % _BLOCK)
    return info.tobuf(format=tarfile.GNU_FORMAT) + data + padding


def _write_all(file: io.FileIO, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _cut(target: Path, finished: int) -> None:
    """Leave only whole entries; the end mark is short and may find room where the rest did not."""
    os.truncate(target, finished)
    try:
        with target.open("ab") as file:
            file.write(gzip.compress(_TAR_END))
    except OSError:
        os.truncate(target, finished)


def _manifest(files: Files, shared: Files, redaction: Redaction) -> Manifest:
    try:
        base = msgspec.json.decode(files.get(manifest.FILE, b""), type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError):
        base = Manifest(deployment="", tool_version="", captured_at="", took_s=0.0, is_complete=False)
    told = base.conclusion and redaction.conclusion(base.conclusion)
    return msgspec.structs.replace(base, deployment="", missing=(), files=tuple(_listed(shared)), conclusion=told)


def _listed(shared: Files) -> Iterable[manifest.FileEntry]:
    for name, data in sorted(shared.items()):
        yield manifest.FileEntry(path=name, size_bytes=len(data), sha256=manifest.sha256_of(io.BytesIO(data)))


def _write_private(path: Path, data: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        raise PdctlError(f"cannot write {path}: {error.strerror}", "make room there; the archive is whole") from error


def _environment_secrets() -> tuple[str, ...]:
    """Return the key that this pdctl itself sends."""
    value = os.environ.get(ENVIRONMENT_KEY, "")
    return (value,) if value else ()


def _host_names() -> tuple[str, ...]:
    """Return what this machine and its user are called; too short a word would hit innocent text."""
    found = {socket.gethostname(), socket.gethostname().partition(".")[0]}
    with contextlib.suppress(KeyError, OSError):  # a container's user without a name
        found.add(getpass.getuser())
    return tuple(sorted(name for name in found if len(name) >= 4 and name not in ("root", "localhost")))
