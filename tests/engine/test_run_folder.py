"""Folders of killed instances are swept, those of living ones are not."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from engine.run_folder import LOCK, run_folder, sweep


@pytest.fixture(autouse=True)
def own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All folders of a test lie in its own place."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_folder_is_private_and_goes(tmp_path: Path) -> None:
    """Only its owner can enter, and nothing is left at the end."""
    with run_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


def test_abandoned_folder_is_swept(tmp_path: Path) -> None:
    """A folder whose lock nobody holds goes with the next start."""
    dead = tmp_path / "pdengine-dead"
    dead.mkdir()
    (dead / LOCK).touch()
    (dead / "requests").touch()
    with run_folder():
        assert not dead.exists()


def test_living_folder_stays(tmp_path: Path) -> None:
    """A folder in use, one just being made, and everything of another name stay."""
    (tmp_path / "pdengine-new").mkdir()
    (tmp_path / "other").mkdir()
    with run_folder() as folder:
        sweep(tmp_path)
        assert folder.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "pdengine-new"]


def test_old_folder_without_a_lock_is_swept(tmp_path: Path) -> None:
    """An instance killed between making folder and lock leaves no trace for long."""
    old = tmp_path / "pdengine-old"
    old.mkdir()
    os.utime(old, (0, 0))
    sweep(tmp_path)
    assert not old.exists()


def test_link_is_not_followed(tmp_path: Path) -> None:
    """A link with such a name cannot make the sweep remove what it points to."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / LOCK).touch()
    (tmp_path / "pdengine-link").symlink_to(precious)
    sweep(tmp_path)
    assert (precious / LOCK).exists()
