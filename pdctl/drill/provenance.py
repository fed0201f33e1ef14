"""Which sources a figure belongs to."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
from pathlib import Path

from pdctl.errors import PdctlError

PACKAGES = ("engine", "pdctl")
GIT_S = 5.0


def sources_hash() -> str:
    """Return a hash over every source file of engine and pdctl, as they are installed. Imports neither."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted(_folder(package).rglob("*.py")):
            digest.update(f"{package}/{path.relative_to(_folder(package))}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def commit() -> str | None:
    """Return the commit that the sources stand at, with `+` where they differ from it; None outside a checkout."""
    here = _folder("pdctl")
    said = [_git(here, "rev-parse", "--short=12", "HEAD"), _git(here, "status", "--porcelain", *PACKAGES)]
    if said[0] is None or said[1] is None:
        return None
    return said[0] + ("+" if said[1] else "")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        ran = subprocess.run(
            ["git", "-C", str(folder.parent), *arguments], capture_output=True, text=True, timeout=GIT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.stdout.strip() if ran.returncode == 0 else None


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise PdctlError(f"the package {package} is not installed here", "pip install '.[engine]'")
    return Path(found.submodule_search_locations[0])
