"""One fake-backed instance of each role for all tests that leave it running."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.api.instance import Instance, running
from tests.ports import free_port

PEER = "127.0.0.1:8998"


@pytest.fixture(scope="session")
def unified(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A unified instance."""
    with running(tiny_model_dir, tmp_path_factory.mktemp("unified"), "unified") as instance:
        yield instance


@pytest.fixture(scope="session")
def prefill(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A prefill instance."""
    folder = tmp_path_factory.mktemp("prefill")
    registry = str(free_port())
    with running(tiny_model_dir, folder, "prefill", "--bootstrap-port", registry) as instance:
        instance.registry = f"http://127.0.0.1:{registry}"
        yield instance


@pytest.fixture(scope="session")
def decode(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A decode instance that knows one peer, PEER."""
    with running(tiny_model_dir, tmp_path_factory.mktemp("decode"), "decode", "--peers", PEER) as instance:
        yield instance
