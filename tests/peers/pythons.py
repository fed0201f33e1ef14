"""Where the Python of each peer is, and what a test says that finds none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.peers.install import PEERS


def python_of(name: str) -> Path | None:
    """Return a peer's Python: `PDCTL_PEER_NAME`, else the one that `tests.peers.install` made; None without either.

    One that was named is taken as it is: a wrong name fails the tests.
    """
    variable = f"PDCTL_PEER_{name.upper().replace('-', '_')}"
    if named := os.environ.get(variable):
        return Path(named)
    return PEERS[name].python if PEERS[name].is_there else None


def needs(*names: str) -> pytest.MarkDecorator:
    """Return the mark of tests that need these peers: skipped without them, with the command that installs them."""
    missing = [name for name in names if python_of(name) is None]
    how = f"python -m tests.peers.install {' '.join(missing)}"
    return pytest.mark.skipif(bool(missing), reason=f"nothing was tested against {' and '.join(missing)}: {how}")
