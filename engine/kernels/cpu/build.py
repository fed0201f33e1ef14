"""Compiles the C++ step on the machine that runs it, once: the library is kept in the user's cache folder."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine.errors import EngineError

SOURCES = ("step.cpp", "attention.h", "matmul.h", "vector.h")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared")
LIMIT_S = 45.0
"""For the compiler, and for waiting for another process's. It needs 4 s of CPU time; the rest is for a crowd."""
POLL_S = 0.05
NAME = "cpu-step-"
BUILD = "build-"
"""Begins the folders of compilers at work."""
MOST_LIBRARIES = 16
"""Kept in a cache folder; one is 70 kB. Each release of the engine, and each kind of CPU, has its own."""
ABANDONED_S = 3600.0
"""A lock without a library, or a compiler's folder, that is so old was left by a process that was killed."""


class BuildError(EngineError):
    """The C++ step cannot be had here; torch computes instead."""


def built_library(cache: Path | None = None, compiler: Sequence[str] = ()) -> Path:
    """Return the library for this CPU, compiling it if `cache` (default: the user's) lacks it.

    Several processes may call this at once: one compiles, the others wait. `compiler` (default: $CXX, or g++)
    is not part of the key, so that a cache serves a machine without one. The library knows nothing of
    torch, so none of its versions is either. Whoever compiles removes those that were used least recently: loading one
    can fail because it has just gone, and then this is called again. Raises BuildError after at most twice LIMIT_S.
    """
    folder = cache or _cache_folder()
    library = folder / f"{NAME}{_key()}.so"
    if library.is_file():
        with contextlib.suppress(OSError):  # A cache that this user may only read is nobody's to tidy.
            os.utime(library)
        return library
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _lock(library.with_suffix(".lock")):
            if not library.is_file():
                _compile(list(compiler) or os.environ.get("CXX", "g++").split(), library)
                with contextlib.suppress(OSError):  # Files of other users stay.
                    _tidy(folder, library)
    except OSError as error:
        raise BuildError(f"cannot compile into {folder}: {error}") from error
    return library


def _cache_folder() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pdengine"
    except RuntimeError as error:
        raise BuildError(
            f"there is no cache folder: set XDG_CACHE_HOME to one that can be written ({error})"
        ) from error


def _key() -> str:
    """Return a hash of all that the library's bytes follow from: sources, flags, and what the CPU can do."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for name in SOURCES:
        digest.update(Path(__file__).with_name(name).read_bytes())
    digest.update(_cpu_flags(Path("/proc/cpuinfo")).encode())
    return digest.hexdigest()[:16]


def _cpu_flags(cpuinfo: Path) -> str:
    """Return the first CPU's line of features; empty where the kernel names none (other architectures)."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    end = time.monotonic() + LIMIT_S
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise BuildError(f"another process has held {path} for {LIMIT_S:g} s") from None
                time.sleep(POLL_S)
        yield


def _compile(compiler: list[str], library: Path) -> None:
    """Compile beside the library and rename: no process ever loads half a file."""
    source = Path(__file__).with_name(SOURCES[0])
    with tempfile.TemporaryDirectory(prefix=BUILD, dir=library.parent) as folder:
        output = Path(folder) / library.name
        code, said = _run([*compiler, *FLAGS, str(source), "-o", str(output)])
        if code:
            first = next((line for line in said.splitlines() if "error" in line), said.strip()[:200])
            raise BuildError(f"{compiler[0]} ended with {code}: {first}")
        output.replace(library)


def _tidy(folder: Path, new: Path) -> None:
    """Bound what the folder holds. Others may start, compile and tidy meanwhile: what is gone already is well."""
    older = sorted(set(folder.glob(f"{NAME}*.so")) - {new}, key=_used_at, reverse=True)
    for library in older[MOST_LIBRARIES - 1 :]:
        library.unlink(missing_ok=True)
        library.with_suffix(".lock").unlink(missing_ok=True)
    abandoned = time.time() - ABANDONED_S
    for lock in folder.glob(f"{NAME}*.lock"):
        if not lock.with_suffix(".so").is_file() and _used_at(lock) < abandoned:
            lock.unlink(missing_ok=True)
    for left in folder.glob(f"{BUILD}*"):
        if _used_at(left) < abandoned:
            shutil.rmtree(left, ignore_errors=True)


def _used_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _run(command: list[str]) -> tuple[int, str]:
    """Return the compiler's exit status and what it said; at the limit, end it with all that it started."""
    try:
        compiler = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError:
        raise BuildError(f"there is no compiler {command[0]} here; install g++, or name one in CXX") from None
    try:
        _, said = compiler.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{command[0]} was still compiling after {LIMIT_S:g} s") from None
    finally:
        if compiler.poll() is None:
            os.killpg(compiler.pid, signal.SIGKILL)
            compiler.communicate()
    return compiler.returncode, said
