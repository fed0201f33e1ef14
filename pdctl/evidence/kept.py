"""Where exact evidence is kept: `STATE/NAME/incidents/TIME`, for its owner alone, for 14 days."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from pathlib import Path

from pdctl.errors import PdctlError

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
