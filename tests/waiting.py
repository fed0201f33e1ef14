"""Wait for a condition instead of sleeping for a guess."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T], within_s: float = 20.0) -> T:
    """Return what `look` gives as soon as it is true; fail with its last value after `within_s`."""
    ends_at = time.monotonic() + within_s
    while not (seen := look()):
        assert time.monotonic() < ends_at, f"still {seen!r} after {within_s} s"
        time.sleep(0.01)
    return seen
