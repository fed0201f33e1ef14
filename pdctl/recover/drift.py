"""What else a restart would deploy: flags, environment, package files and weights newer than the process."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pdctl.deployment.model import Instance
from pdctl.managers.shim import Observation

CODE = (".py", ".so")


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
    if record.pid is not None and seen.life.has_process:
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
    has = dict(pair.split("=", 1) for pair in data.decode(errors="replace").split("\0") if "=" in pair)
    for name, value in wanted.items():
        if has.get(name) != value:
            yield f"environment: {name} is {has.get(name, 'not set')!r}, would be {value!r}"


def _newer(argv: Sequence[str], started_at: float) -> Iterator[str]:
    weights = weights_of(argv)
    if weights is not None and (latest := _latest(weights, ())) and latest[0] > started_at:
        yield f"weights: {latest[1]} changed {_ago(latest[0], started_at)}"
    if argv[0] != sys.executable:
        return  # another interpreter's packages cannot be looked up from here
    if "-m" in argv[:-1]:
        module = argv[argv.index("-m") + 1]
        spec = importlib.util.find_spec(module)
        newest = _latest(Path(spec.origin).parent, CODE) if spec is not None and spec.origin else None
        if newest is not None and newest[0] > started_at:
            yield f"code: {module}: {newest[1].name} changed {_ago(newest[0], started_at)}"
    for distribution in importlib.metadata.distributions():
        place = getattr(distribution, "_path", None)
        if isinstance(place, Path) and place.exists() and place.stat().st_mtime > started_at:
            when = _ago(place.stat().st_mtime, started_at)
            yield f"package: {distribution.name} {distribution.version} installed {when}"


def _latest(path: Path, endings: tuple[str, ...]) -> tuple[float, Path] | None:
    """Return the newest file with one of the endings (of any, without) and when it changed."""
    files = [path] if path.is_file() else [item for item in path.rglob("*") if item.is_file()]
    stamps = [(item.stat().st_mtime, item) for item in files if not endings or item.suffix in endings]
    return max(stamps, default=None)


def _ago(changed_at: float, started_at: float) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(changed_at))
    return f"{when}, {changed_at - started_at:.0f} s after the process started"
