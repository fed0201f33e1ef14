"""One booted system for all tests of this folder that a worker runs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.machines.booted import Booted, booted


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    """A running systemd; its home is visible in there under the same path."""
    with booted(tmp_path_factory.mktemp("machine"), f"pdctl-test-{os.getpid()}") as machine:
        yield machine
