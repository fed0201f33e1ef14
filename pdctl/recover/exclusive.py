"""Two operators never both act: one of them holds the lock, the other is told who."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from pdctl.deployment.lock_file import held
from pdctl.deployment.state import StateFolder
from pdctl.errors import Refused
from pdctl.recover.ledger import operator


@contextmanager
def sole_operator(folder: StateFolder) -> Iterator[None]:
    """Be the only one who recovers this deployment. Raises Refused, at once, naming who does; PdctlError."""

    def refuse(holder: str) -> None:
        raise Refused(
            f"{holder or 'another pdctl'} is recovering {folder.name!r}; nothing was changed",
            f"pdctl history --name {folder.name}   shows how far it is",
        )

    folder.create()
    with held(folder.folder / "recovery.lock", f"{operator()} (since {time.strftime('%H:%M:%S')})", refuse):
        yield
