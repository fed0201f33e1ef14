"""Two incidents side by side, as lines or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec

from pdctl.diagnose.comparison import Difference

_WIDEST = 44


def as_json(rows: Sequence[Difference]) -> str:
    """Return `[{section, instance, what, before, after, differs}]`."""
    return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode()


def as_lines(rows: Sequence[Difference], before: str, after: str) -> str:
    """Return the rows by section; `!` marks what differs."""
    if not rows:
        return "nothing differs"
    names = [f"{row.instance} {row.what}".strip() for row in rows]
    width = min(_WIDEST, max(map(len, names)))
    value = min(_WIDEST, max(len(row.before) for row in rows))
    lines = [f"A  {before}", f"B  {after}"]
    for section, group in groupby(zip(rows, names, strict=True), key=lambda pair: pair[0].section):
        lines += ["", section]
        lines += [
            f"{'!' if row.differs else ' '} {name:<{width}}  {row.before:<{value}}  {row.after}" for row, name in group
        ]
    return "\n".join(lines)
