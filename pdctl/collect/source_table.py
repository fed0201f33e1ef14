"""Which code running processes use: `python -I -S source_table.py PID,PID PACKAGE...`, one JSON object a line.

A program of its own, because the package may lie on a network file system that hangs. Only the standard library.
What it reads is the process's own view: its root directory, its working directory, its variables.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILES_MOST = 20_000
NEWER_KEPT = 20
SOURCE_SUFFIXES = (".py", ".so", ".cu", ".json")


def main(pids: list[int], packages: list[str]) -> None:
    """Print what was found of each process; one that is gone or may not be read is left out."""
    for pid in pids:
        try:
            row = _process(pid, packages)
        except (OSError, ValueError, IndexError):
            continue
        print(json.dumps(row), flush=True)


def _process(pid: int, packages: list[str]) -> dict[str, Any]:
    started_at = _started_at(pid)
    environ = _environ(pid)
    folders = list(dict.fromkeys(_module_folders(pid, environ)))
    found: dict[str, Any] = {}
    for package in packages:
        root = next((folder for folder in folders if (folder / package).is_dir()), None)
        if root is not None:
            found[package] = _package(root, package, started_at)
    return {"pid": pid, "started_at": started_at, "environ": environ, "packages": found}


def _started_at(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
    return float(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _environ(pid: int) -> dict[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(item.split("=", 1) for item in raw.split("\0") if "=" in item)


def _module_folders(pid: int, environ: dict[str, str]) -> Iterator[Path]:
    """Yield where this process finds modules, in Python's order, as seen from here."""
    inside = Path(f"/proc/{pid}/root")
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    cwd = str(Path(f"/proc/{pid}/cwd").readlink())
    # With -m the working directory comes first; with a script, the script's folder.
    yield _below(inside, cwd)
    for entry in environ.get("PYTHONPATH", "").split(":"):
        if entry:
            yield _below(inside, os.path.join(cwd, entry))  # noqa: PTH118 - a path of another root
    for folder in [*_mapped(pid), *_of_interpreter(words[0], cwd)]:
        below = _below(inside, folder)
        yield below
        for link in sorted(below.glob("*.pth")):
            yield from (_below(inside, line) for line in _lines(link) if line.startswith("/"))


def _below(inside: Path, path: str) -> Path:
    # Of a process in our own root the plain path is kept: it is what a person would look for.
    return Path(path) if os.path.realpath(inside) == "/" else inside / path.lstrip("/")


def _mapped(pid: int) -> Iterator[str]:
    """Yield the package folders that libraries of this process were really loaded from."""
    try:
        text = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return
    yield from dict.fromkeys(re.findall(r"(/\S*/(?:site|dist)-packages)/", text))


def _of_interpreter(program: str, cwd: str) -> Iterator[str]:
    prefix = Path(os.path.join(cwd, program)).parent.parent  # noqa: PTH118
    yield from (str(path) for path in sorted(prefix.glob("lib/python3*/site-packages")))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _package(root: Path, package: str, started_at: float) -> dict[str, Any]:
    times = _times(root / package)
    newer = sorted(path for path, changed_at in times if changed_at > started_at)
    return {
        "path": str(root / package),
        "version": _version(root, package),
        "newer": newer[:NEWER_KEPT],
        "newer_count": len(newer),
        "newest_at": max((changed_at for _, changed_at in times), default=0.0),
    }


@functools.cache
def _times(folder: Path) -> list[tuple[str, float]]:
    """Return when each source file below a package was changed, as far as 2 s and 20,000 files reach."""
    ends_at = time.monotonic() + 2.0
    found: list[tuple[str, float]] = []
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for path in (Path(here) / name for name in names if name.endswith(SOURCE_SUFFIXES)):
            try:
                found.append((str(path.relative_to(folder.parent)), path.stat().st_mtime))
            except OSError:
                continue
        if len(found) >= FILES_MOST or time.monotonic() > ends_at:
            break
    return found


@functools.cache
def _version(root: Path, package: str) -> str | None:
    """Return the version of the distribution that has this package at top level."""
    for info in sorted(root.glob("*.dist-info")):
        names = {line.strip() for line in _lines(info / "top_level.txt")}
        stem = info.name.partition("-")[0].lower()
        if package in names or stem in (package, f"ai_{package}"):
            return next((line[9:].strip() for line in _lines(info / "METADATA") if line.startswith("Version: ")), None)
    return None


if __name__ == "__main__":
    main([int(pid) for pid in sys.argv[1].split(",")], sys.argv[2:])
