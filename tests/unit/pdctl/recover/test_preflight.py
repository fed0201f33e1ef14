"""What keeps a target from starting again is found before anything is stopped."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.deployment.model import Instance, Role
from pdctl.deployment.state import StateFolder
from pdctl.errors import Refused
from pdctl.recover import preflight
from tests.ports import free_port


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    """The state of a deployment that never ran."""
    folder = StateFolder(tmp_path, "lab")
    folder.create()
    return folder


def engine(
    *flags: str, port: int | None = None, registry: int | None = None, program: str = sys.executable
) -> Instance:
    return Instance(
        name="prefill-0",
        role=Role.PREFILL,
        dialect="vllm",
        url=f"http://127.0.0.1:{port or free_port()}",
        bootstrap_port=registry,
        manager="shim",
        start=(program, "-m", "engine", *flags),
    )


def problems(folder: StateFolder, instance: Instance) -> list[str]:
    return list(preflight.problems_under_shim(folder, instance))


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A model as a hub's cache has it: a folder of links."""
    blob, model = tmp_path / "blob", tmp_path / "model"
    blob.write_bytes(b"weights")
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").symlink_to(blob)
    return model


def test_an_engine_that_can_start_again_has_no_problem(folder: StateFolder, weights: Path) -> None:
    """Program, weights and ports are there."""
    assert problems(folder, engine("--model", str(weights), registry=free_port())) == []


def test_weights_that_are_gone_are_named(folder: StateFolder, tmp_path: Path) -> None:
    """The engine runs on from memory; it would never start again."""
    gone = tmp_path / "gone.gguf"
    assert problems(folder, engine("--model", str(gone))) == [f"prefill-0: weights {gone} cannot be read"]


def test_a_link_whose_target_was_cleaned_away_is_named(folder: StateFolder, weights: Path) -> None:
    """The folder itself can be read."""
    (weights / "model.safetensors").resolve().unlink()
    [problem] = problems(folder, engine("--model", str(weights)))
    assert problem == f"prefill-0: weights {weights / 'model.safetensors'} cannot be read"


def test_a_program_that_is_gone_is_named(folder: StateFolder) -> None:
    """A virtual environment that was removed under the running engine."""
    assert problems(folder, engine(program="/nowhere/python")) == ["prefill-0: /nowhere/python cannot be executed"]


@pytest.fixture
def foreign() -> Iterator[int]:
    """A port on which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_port_that_somebody_else_took_is_named(folder: StateFolder, foreign: int) -> None:
    """Its own, or that of its registry."""
    said = [f"port {foreign} of prefill-0 is held by another process"]
    assert problems(folder, engine(port=foreign)) == said
    assert problems(folder, engine(registry=foreign)) == said


def test_no_room_on_the_disk_refuses(folder: StateFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is put above what is free here: a full disk cannot be had in a test."""
    free = shutil.disk_usage(folder.folder).free
    monkeypatch.setattr(preflight, "ROOM_BYTES", free + (1 << 30))
    with pytest.raises(Refused, match=f"only [0-9]+ MB free in {folder.folder}") as raised:
        preflight.check(folder, [engine()], lambda instance: ())
    assert raised.value.hint == "nothing was stopped; put this right first"


def test_every_problem_of_every_target_is_told_at_once(folder: StateFolder, foreign: int, tmp_path: Path) -> None:
    """Nobody has to try again to hear of the next one."""
    targets = [engine(port=foreign), engine("--model", str(tmp_path / "gone"))]
    with pytest.raises(Refused) as raised:
        preflight.check(folder, targets, lambda instance: preflight.problems_under_shim(folder, instance))
    assert "is held by another process; prefill-0: weights" in raised.value.message
    assert raised.value.exit_code == 5
