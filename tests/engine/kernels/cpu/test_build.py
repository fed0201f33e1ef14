"""Compiling the C++ step: once, by one process, and never at the price of a start."""

from __future__ import annotations

import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from engine.kernels.cpu import build, step
from engine.kernels.cpu.build import BuildError, built_library
from engine.kernels.cpu.step import step_function
from engine.model.checkpoint import open_checkpoint
from engine.model.decoder import LanguageModel
from engine.model.loading import load_model
from tests.engine.model.random_checkpoint import saved
from tests.waiting import eventually


def script(folder: Path, lines: str) -> list[str]:
    """Return the command of a stand-in for the compiler; $OUT is the file it has to write."""
    path = folder / "compiler"
    path.write_text(f'#!/bin/sh\nfor word; do OUT="$word"; done\n{lines}\n')
    path.chmod(0o755)
    return [str(path)]


def test_processes_that_start_at_once_compile_once(tmp_path: Path) -> None:
    """Eight ask for a library that is not there: one compiles, all get the same whole file."""
    compiler = script(tmp_path, f'echo run >> {tmp_path}/runs; sleep 0.3; printf whole > "$OUT"')
    with ThreadPoolExecutor(8) as pool:
        libraries = set(pool.map(lambda _: built_library(tmp_path / "cache", compiler), range(8)))
    assert [library.read_text() for library in libraries] == ["whole"]
    assert (tmp_path / "runs").read_text() == "run\n"
    assert {path.suffix for path in (tmp_path / "cache").iterdir()} == {".so", ".lock"}


def test_a_cached_library_needs_no_compiler(tmp_path: Path) -> None:
    """Built once, it is found again on a machine from which the compiler has gone."""
    first = built_library(tmp_path, script(tmp_path, 'printf whole > "$OUT"'))
    assert built_library(tmp_path, ["/nowhere/g++"]) == first


def test_another_cpu_gets_another_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache on a shared disk never gives a CPU instructions that it lacks."""
    compiler = script(tmp_path, 'printf whole > "$OUT"')
    here = built_library(tmp_path, compiler)
    monkeypatch.setattr(build, "_cpu_flags", lambda _: "flags : fpu")
    assert built_library(tmp_path, compiler) != here


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("echo 'x.cpp:1: error: no such luck' >&2; exit 1", "ended with 1: x.cpp:1: error: no such luck"),
        ("kill -9 $$", "ended with -9"),
        ("sleep 60", "still compiling after 0.2 s"),
    ],
)
def test_a_compiler_that_fails_is_an_error_that_says_how(
    lines: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves nothing behind that the next start would take for a library."""
    monkeypatch.setattr(build, "LIMIT_S", 0.2 if "sleep" in lines else 20)
    with pytest.raises(BuildError) as caught:
        built_library(tmp_path / "cache", script(tmp_path, lines))
    assert message in str(caught.value)
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_what_the_compiler_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """g++ is a driver: the compiler proper is its child, and would go on burning the core that the engine needs."""
    monkeypatch.setattr(build, "LIMIT_S", 0.5)
    lines = f"sleep 600 & echo $! > {tmp_path}/child; wait"
    with pytest.raises(BuildError, match="still compiling"):
        built_library(tmp_path / "cache", script(tmp_path, lines))
    child = int((tmp_path / "child").read_text())
    eventually(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)


def written(folder: Path, name: str, age_s: float) -> Path:
    """Write a file that was last used so long ago."""
    path = folder / name
    path.write_text("old")
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_the_cache_is_bounded_by_what_was_used_last(tmp_path: Path) -> None:
    """20 libraries of older releases: the new one and the 15 that were used last stay, the others go, locks too."""
    libraries = [written(tmp_path, f"cpu-step-{number:016d}.so", 1000 + number) for number in range(20)]
    for library in libraries:
        library.with_suffix(".lock").touch()
    written(tmp_path, "someone-else", 1e9)
    new = built_library(tmp_path, script(tmp_path, 'printf whole > "$OUT"'))
    assert set(tmp_path.glob("*.so")) == {new, *libraries[:15]}
    assert {path.with_suffix(".so") for path in tmp_path.glob("*.lock")} == {new, *libraries[:15]}
    assert (tmp_path / "someone-else").exists()


def test_a_library_in_use_stays(tmp_path: Path) -> None:
    """A start marks the library that it takes as used, so the oldest release in the folder may be the one that runs."""
    compiler = script(tmp_path, 'printf whole > "$OUT"')
    ours = built_library(tmp_path, compiler)
    os.utime(ours, (1, 1))
    built_library(tmp_path, compiler)
    for number in range(20):
        written(tmp_path, f"cpu-step-{number:016d}.so", 1000)
    build._tidy(tmp_path, tmp_path / "cpu-step-0000000000000000.so")
    assert ours.exists()
    assert len(list(tmp_path.glob("*.so"))) <= 16


def test_what_a_killed_compiler_left_goes(tmp_path: Path) -> None:
    """A folder and a lock of long ago; those of a compiler at work stay."""
    for age_s, name in ((9000, "old"), (10, "new")):
        (tmp_path / f"build-{name}").mkdir()
        os.utime(tmp_path / f"build-{name}", (time.time() - age_s,) * 2)
        written(tmp_path, f"cpu-step-{name}.lock", age_s)
    new = built_library(tmp_path, script(tmp_path, 'printf whole > "$OUT"'))
    left = {path.name for path in tmp_path.iterdir()} - {"compiler", new.name, new.with_suffix(".lock").name}
    assert left == {"build-new", "cpu-step-new.lock"}


def test_a_library_that_goes_before_it_is_loaded_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another start bounds the cache at that very moment."""
    config = open_checkpoint(saved("llama", tmp_path / "model")).config
    cache, taken = tmp_path / "cache", list[Path]()

    def taken_away(folder: Path | None) -> Path:
        library = built_library(folder)
        if not taken:
            library.unlink()
        taken.append(library)
        return library

    monkeypatch.setattr(step, "built_library", taken_away)
    assert callable(step_function(config, cache))
    assert len(taken) == 2


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container with a user of its own number and no entry in its tables."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(BuildError, match="set XDG_CACHE_HOME"):
        built_library()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """Here: a file stands where the folder should be."""
    (tmp_path / "cache").write_text("")
    with pytest.raises(BuildError, match="cannot compile into"):
        built_library(tmp_path / "cache")


def test_a_library_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    """A damaged file in the cache: the message says which to remove."""
    config = open_checkpoint(saved("llama", tmp_path / "model")).config
    library = built_library(tmp_path, script(tmp_path, 'printf damaged > "$OUT"'))
    with pytest.raises(BuildError, match=f"{library} cannot be loaded; remove it"):
        step_function(config, tmp_path)


def test_without_a_compiler_torch_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The start goes on, with one line in the log that says what to install."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("CXX", "/nowhere/g++")
    folder = saved("llama", tmp_path / "model")
    with caplog.at_level(logging.INFO, "engine"):
        model = load_model(open_checkpoint(folder), "bfloat16", cpu_step="auto")
    assert isinstance(model, LanguageModel)
    assert [record.getMessage() for record in caplog.records] == [
        "torch computes this model: the C++ step cannot be had: "
        "there is no compiler /nowhere/g++ here; install g++, or name one in CXX"
    ]


@pytest.mark.parametrize(("dtype", "cpu_step"), [("bfloat16", "off"), ("float32", "auto")])
def test_it_is_for_bfloat16_and_can_be_switched_off(
    dtype: str, cpu_step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is compiled then."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    model = load_model(open_checkpoint(saved("llama", tmp_path / "model")), dtype, cpu_step=cpu_step)
    assert isinstance(model, LanguageModel)
    assert not (tmp_path / "empty").exists()
