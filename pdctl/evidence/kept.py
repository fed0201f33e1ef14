"""Where exact evidence is kept: `STATE/NAME/incidents/TIME`, for its owner alone, for 14 days."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from pathlib import Path

from pdctl.errors import PdctlError
from pdctl.evidence.credentials import Credentials

FOLDER = "incidents"
KEEP_S = 14 * 86_400.0


def fresh_directory(state_folder: Path, now: float | None = None) -> Path:
    """Make an empty directory, mode 0700, and delete what is older than 14 days. Raises PdctlError."""
    now = time.time() if now is None else now
    root = state_folder / FOLDER
    name = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now)) + f"-{secrets.token_hex(2)}"
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        forget_old(root, now)
        (root / name).mkdir(mode=0o700)
    except OSError as error:
        raise PdctlError(f"cannot make {root / name}: {error.strerror}", "make room there") from error
    return root / name


def cleanse(directory: Path, credentials: Credentials) -> int:
    """Mask credentials that a collector let through, file by file; return in how many there were any."""
    changed = 0
    for path in sorted(directory.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        data = path.read_bytes()
        clean = credentials.without(data)
        if clean != data:
            draft = path.with_name(f".{path.name}.part")
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(clean)
            draft.replace(path)
            changed += 1
    return changed


def forget_old(root: Path, now: float) -> None:
    """Delete the directories and archives that were made more than 14 days ago."""
    for entry in root.iterdir():
        with contextlib.suppress(OSError):
            if now - entry.lstat().st_mtime <= KEEP_S:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
