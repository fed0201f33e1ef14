"""Terminals: data goes to stdout, everything else to stderr; colours only where they can be shown."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 200
"""Columns when stdout is no terminal: a pipe must not lose text to an 80-column default."""


def stdout_console() -> Console:
    """Return a console for data. Honours NO_COLOR, TERM=dumb and COLUMNS."""
    return _console(sys.stdout.isatty(), is_stderr=False)


def stderr_console() -> Console:
    """Return a console for progress."""
    return _console(sys.stderr.isatty(), is_stderr=True)


def tell(message: str) -> None:
    """Print one line of progress on stderr."""
    print(message, file=sys.stderr, flush=True)


def _console(is_terminal: bool, *, is_stderr: bool) -> Console:
    from rich.console import Console  # 60 ms of CPU: only where something is drawn

    return Console(stderr=is_stderr, width=None if is_terminal else WIDE, highlight=False, soft_wrap=False)
