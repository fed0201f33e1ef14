"""What else a restart would deploy: flags, environment, package files and weights newer than the process."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from pdctl.deployment.model import Instance
from pdctl.evidence.credentials import Credentials
from pdctl.evidence.positive_list import ENVIRONMENT
from pdctl.managers.shim import Observation

CODE = (".py", ".so")
_IMPORT = re.compile(r"^\s*(?:import|from)\s+([A-Za-z_]\w*)", re.M)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_DECIDES = re.compile(rf"{ENVIRONMENT.pattern}|LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH|(?:https?|no|all)_proxy", re.I)
"""Variables that a process inherits from the shell it is started from, and that change what it does."""


class Drift(msgspec.Struct, frozen=True):
    """One difference between what runs and what would be started."""

    instance: str
    what: str


def drift_of(instance: Instance, seen: Observation) -> tuple[Drift, ...]:
    """Compare the running process with what its start command would run now. Reads only; some 50 ms."""
    record = seen.record
    if record is None or instance.start is None:
        return ()
    found = [*_flags(record.argv, instance.start)]
    # The shim passes its own environment on, lives longer than an engine, and does not write over it.
    if seen.life.is_supervised:
        found += _environment(record.shim_pid, instance.env)
    elif record.pid is not None and seen.life.has_process:
        found += _environment(record.pid, instance.env)
    if record.started_at is not None:
        found += _newer(instance.start, record.started_at)
    return tuple(Drift(instance.name, what) for what in found)


def weights_of(argv: Sequence[str]) -> Path | None:
    """Return the model path of a command line, where it is a path."""
    for flag in ("--model", "--model-path"):
        if flag in argv[:-1]:
            path = Path(argv[argv.index(flag) + 1])
            return path if path.is_absolute() else None
    return None


def _flags(now: Sequence[str], then: Sequence[str]) -> Iterator[str]:
    if tuple(now) == tuple(then):
        return
    gone = [word for word in now if word not in then]
    new = [word for word in then if word not in now]
    words = f"runs without {' '.join(new)}" if new else ""
    if gone:
        words += f"{'; ' if words else ''}runs with {' '.join(gone)}"
    yield f"other command line: {words or 'the same words in another order'}"


def _environment(pid: int, wanted: dict[str, str]) -> Iterator[str]:
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return
    if data and b"=" not in data.split(b"\0", 1)[0]:
        return  # A process that renamed itself (smg does) has written over its environment: unknown, no drift.
    has = dict(pair.split("=", 1) for pair in data.decode(errors="replace").split("\0") if "=" in pair)
    would = {**os.environ, **wanted}
    for name in sorted({*has, *would}):
        if (name in wanted or _DECIDES.fullmatch(name)) and has.get(name) != would.get(name):
            yield f"environment: {name} is {_shown(name, has)}, would be {_shown(name, would)}"


def _shown(name: str, values: Mapping[str, str]) -> str:
    if name not in values:
        return "not set"
    masked = Credentials().without(f"{name}={values[name]}".encode(errors="replace")).decode(errors="replace")
    return repr(masked.partition("=")[2])


def _newer(argv: Sequence[str], started_at: float) -> Iterator[str]:
    weights = weights_of(argv)
    if weights is not None and (latest := _latest(weights, ())) and latest[0] > started_at:
        yield f"weights: {latest[1]} changed {_ago(latest[0], started_at)}"
    if argv[0] != sys.executable or "-m" not in argv[:-1]:
        return  # another interpreter's packages cannot be looked up from here
    module = argv[argv.index("-m") + 1]
    spec = importlib.util.find_spec(module)
    newest = _latest(Path(spec.origin).parent, CODE) if spec is not None and spec.origin else None
    if newest is not None and newest[0] > started_at:
        yield f"code: {module}: {newest[1].name} changed {_ago(newest[0], started_at)}"
    yield from _newer_packages(module, started_at)


def _newer_packages(module: str, started_at: float) -> Iterator[str]:
    """Yield what was installed since, of what the module needs; what else is in the environment concerns nobody."""
    for distribution in importlib.metadata.distributions():
        place = getattr(distribution, "_path", None)
        if not isinstance(place, Path) or not place.exists() or place.stat().st_mtime <= started_at:
            continue
        if _normal(distribution.name) in needed_by(module):
            when = _ago(place.stat().st_mtime, started_at)
            yield f"package: {distribution.name} {distribution.version} installed {when}"


@functools.lru_cache
def needed_by(module: str) -> frozenset[str]:
    """Return the distributions that a module's package imports, with all that these require. Takes up to a second."""
    root = module.partition(".")[0]
    spec = importlib.util.find_spec(root)
    names = {root}
    for file in Path(spec.origin).parent.rglob("*.py") if spec is not None and spec.origin else ():
        names |= set(_IMPORT.findall(file.read_text(encoding="utf-8", errors="replace")))
    by_package = importlib.metadata.packages_distributions()
    pending = [distribution for name in names for distribution in by_package.get(name, ())]
    found: set[str] = set()
    while pending:
        name = _normal(pending.pop())
        if name in found:
            continue
        found.add(name)
        try:
            required = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        pending += [match[0] for line in required if "extra ==" not in line and (match := _NAME.match(line))]
    return frozenset(found)


def _normal(name: str) -> str:
    """Return a distribution's name as all spellings of it are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _latest(path: Path, endings: tuple[str, ...]) -> tuple[float, Path] | None:
    """Return the newest file with one of the endings (of any, without) and when it changed."""
    files = [path] if path.is_file() else [item for item in path.rglob("*") if item.is_file()]
    stamps = [(item.stat().st_mtime, item) for item in files if not endings or item.suffix in endings]
    return max(stamps, default=None)


def _ago(changed_at: float, started_at: float) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(changed_at))
    return f"{when}, {changed_at - started_at:.0f} s after the process started"
