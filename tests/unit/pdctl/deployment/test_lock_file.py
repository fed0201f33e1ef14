"""A lock that says who holds it: between two holders, and where nothing can be written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.deployment.lock_file import held
from pdctl.errors import PdctlError


class Busy(Exception):
    """Somebody else holds it."""


def refuse(holder: str) -> None:
    """Do not wait."""
    raise Busy(holder)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system without room for a byte, where the lock's file is there already."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    folder = tmp_path / "full"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True)
    (folder / "lock").touch()
    (folder / "filler").write_bytes(bytes(64 << 10))
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_who_comes_second_is_told_who_is_first(tmp_path: Path) -> None:
    """With the first one's mark; when that is done, the next one has it."""
    with held(tmp_path / "lock", "me", refuse), pytest.raises(Busy, match="me"), held(tmp_path / "lock", "you", refuse):
        pass
    with held(tmp_path / "lock", "you", refuse):
        assert (tmp_path / "lock").read_text() == "you"


def test_a_full_disk_costs_the_mark_and_not_the_lock(full: Path) -> None:
    """At 3 a.m. the disk is full, and the engines must be restarted all the same."""
    with held(full / "lock", "me", refuse), pytest.raises(Busy, match=r"^$"), held(full / "lock", "you", refuse):
        pass


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    """One message with the path."""
    with pytest.raises(PdctlError, match="cannot make the lock"), held(tmp_path / "no" / "lock", "me", refuse):
        pass
