"""Log lines on stdout."""

from __future__ import annotations

from collections.abc import Collection

from pdctl.managers.log_files import Line


def print_line(line: Line, instances: Collection[str]) -> None:
    """Print one line, with its instance before it where several are shown."""
    width = max(map(len, instances))
    prefix = f"{line.instance:<{width}} | " if len(instances) > 1 else ""
    print(f"{prefix}{line.text}", flush=True)
