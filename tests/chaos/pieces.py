"""Long runs in pieces: which of numbered cases this process runs, and the chance of each by itself."""

from __future__ import annotations

import os
import random


def piece(name: str, default: int) -> range:
    """Return the numbers that the variable `name` asks for: `100`, or `40-60` for 40 to 59. Raises ValueError."""
    first, _, last = os.environ.get(name, str(default)).rpartition("-")
    return range(int(first or 0), int(last))


def chance_of(seed: int, number: int) -> random.Random:
    """Return the chance of one case: the same in whatever piece it runs."""
    return random.Random(f"{seed} {number}")
