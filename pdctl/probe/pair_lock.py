"""At most one probe per pair at a time, on this machine, for as long as its connection lives.

A lock is one on a file named after the pair's two addresses. Processes that hold a connection inherit the
descriptor, so a probe that was left behind keeps its pair locked until the engine ends it.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pdctl.deployment.lock_file import held
from pdctl.errors import PdctlError, Refused

Pair = tuple[str, str]
"""The two base URLs; both the same where there is but one."""


@contextmanager
def pair_locks(folder: Path, pairs: Sequence[Pair], request_id: str) -> Iterator[tuple[int, ...]]:
    """Hold the locks of all pairs; yields their descriptors, to be inherited by the legs.

    Raises Refused, holding none, when a probe of one of the pairs is under way.
    """
    with contextlib.ExitStack() as stack:
        # Sorted, so that two commands never wait crosswise; they do not wait at all, but this costs nothing.
        yield tuple(stack.enter_context(_lock(folder, pair, request_id)) for pair in sorted(set(pairs)))


@contextmanager
def _lock(folder: Path, pair: Pair, request_id: str) -> Iterator[int]:
    path = folder / f"{hashlib.sha256(' '.join(pair).encode()).hexdigest()[:16]}.lock"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PdctlError(
            f"cannot make the folder of the probe's lock {path}: {error.strerror}",
            "set XDG_STATE_HOME to a folder that you may write",
        ) from error

    def refuse(holder: str) -> None:
        raise _refused(pair, holder)

    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
    with held(path, f"{request_id} since {stamp}", refuse) as descriptor:
        yield descriptor


def _refused(pair: Pair, holder: str) -> Refused:
    first, second = pair
    between = first if first == second else f"{first} and {second}"
    return Refused(
        f"a probe of {between} is still under way ({holder or 'holder unknown'}); at most one per pair",
        "wait until the engine has ended it: its connection is kept open so that no abort can do harm",
    )
