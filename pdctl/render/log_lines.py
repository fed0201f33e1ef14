"""Log lines on stdout."""

from __future__ import annotations

import sys
from collections.abc import Collection

from pdctl.managers.log_files import Line


def print_line(line: Line, instances: Collection[str]) -> None:
    """Print one line, with its instance before it where several are shown."""
    width = max(map(len, instances))
    prefix = f"{line.instance:<{width}} | " if len(instances) > 1 else ""
    # A log may hold bytes that this terminal's encoding cannot say.
    encoding = sys.stdout.encoding or "utf-8"
    text = f"{prefix}{line.text}".encode(encoding, "replace").decode(encoding)
    print(text, flush=True)
