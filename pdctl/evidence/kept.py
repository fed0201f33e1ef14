"""Where exact evidence is kept: `STATE/NAME/incidents/TIME`, for its owner alone, for 14 days."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from datetime import datetime
from pathlib import Path

import msgspec

from pdctl.errors import CannotTell, PdctlError
from pdctl.evidence import manifest

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


class Earlier(msgspec.Struct, frozen=True):
    """What pdctl concluded from an incident that is kept."""

    at: datetime
    conclusion: manifest.Conclusion


def last_conclusion(state_folder: Path) -> manifest.Conclusion:
    """Return what was concluded last of a deployment and had a cause. Raises CannotTell where there is none."""
    root = state_folder / FOLDER
    names = sorted(root.iterdir(), reverse=True) if root.is_dir() else []
    made = (item.conclusion for item in map(manifest.read, names) if item is not None)
    last = next((item for item in made if item is not None and item.codes), None)
    if last is None:
        raise CannotTell(f"no cause was found yet in {root}", "run `pdctl diagnose`, or name a finding")
    return last


def earlier_than(directory: Path) -> tuple[Earlier, ...]:
    """Return the conclusions kept beside a kept directory and older than it, newest first.

    None for a folder that lies elsewhere. What cannot be read any more is left out: it is history, not evidence.
    """
    if directory.parent.name != FOLDER:
        return ()
    names = sorted((path for path in directory.parent.iterdir() if path.name < directory.name), reverse=True)
    found = (item for item in map(manifest.read, names) if item is not None)
    return tuple(
        Earlier(datetime.fromisoformat(item.captured_at), item.conclusion) for item in found if item.conclusion
    )
