"""The state folder and the choice of a deployment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pdctl.deployment import files, state
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.errors import CannotTell, PdctlError, UsageError


def deployment(name: str) -> Deployment:
    one = Instance(name=f"{name}-decode", role=Role.DECODE, dialect="pdctl", url="http://127.0.0.1:1", manager="shim")
    return Deployment(name=name, model="m", instances=(one,))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state root, and an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state"


@pytest.mark.parametrize(
    ("environ", "root"),
    [
        ({"XDG_STATE_HOME": "/s"}, Path("/s/pdctl")),
        ({"XDG_STATE_HOME": ""}, Path.home() / ".local/state/pdctl"),
        ({"XDG_STATE_HOME": "relative"}, Path.home() / ".local/state/pdctl"),
        ({}, Path.home() / ".local/state/pdctl"),
    ],
)
def test_state_root(environ: dict[str, str], root: Path) -> None:
    """As the XDG specification says: empty and relative values count as absent."""
    assert state.state_root(environ) == root


def test_kept_deployment_is_read_back(root: Path) -> None:
    """With its instance names in a plain file for the shells, readable by the user alone."""
    folder = state.StateFolder(root, "a")
    folder.save(deployment("a"))
    assert folder.load() == deployment("a")
    assert (root / "a" / "names").read_text() == "a-decode\n"
    assert (root / "a").stat().st_mode & 0o777 == 0o700


def test_order_of_choice(root: Path) -> None:
    """--file before --name before ./pd.toml before the one used last."""
    for name in ("a", "b"):
        state.StateFolder(root, name).save(deployment(name))
    files.save(deployment("c"), Path("other.toml"))
    assert state.chosen(None, None, root).name == "b"
    files.save(deployment("d"), Path("pd.toml"))
    assert state.chosen(None, None, root).name == "d"
    assert state.chosen("a", None, root).name == "a"
    assert state.chosen(None, Path("other.toml"), root).name == "c"
    with pytest.raises(UsageError, match="--name and --file"):
        state.chosen("a", Path("other.toml"), root)


@pytest.mark.parametrize("last", [None, "gone\n", "../../etc\n", ""])
def test_nothing_deployed(root: Path, last: str | None) -> None:
    """Also where the note of the last one leads nowhere, or out of the folder."""
    root.mkdir()
    if last is not None:
        (root / "last").write_text(last)
    with pytest.raises(CannotTell) as caught:
        state.chosen(None, None, root)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("name", ["../a", "a/b", "", ".hidden"])
def test_name_cannot_leave_the_state_folder(root: Path, name: str) -> None:
    """A name is a name, not a path."""
    with pytest.raises((UsageError, CannotTell)):
        state.chosen(name, None, root)


def test_state_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """A file in its place: the folder and the variable to set are named."""
    (tmp_path / "file").write_text("")
    with pytest.raises(PdctlError, match="cannot make the state folder") as caught:
        state.StateFolder(tmp_path / "file", "a").create()
    assert caught.value.hint == "set XDG_STATE_HOME to a folder that you may write"


def test_second_pdctl_waits_for_the_first(root: Path) -> None:
    """It is told who is waited for, and goes on as soon as that one is done or dead."""
    folder = state.StateFolder(root, "a")
    code = (
        "import pathlib, sys\n"
        "from pdctl.deployment.state import StateFolder\n"
        "with StateFolder(pathlib.Path(sys.argv[1]), 'a').locked(print):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(files.__file__).parents[2])},
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        told: list[str] = []

        def kill(message: str) -> None:
            told.append(message)
            other.kill()

        with folder.locked(kill):
            assert told == [f"waiting for another pdctl (pid {other.pid}) that works on 'a'"]
