"""Shell completions as static files, written from the command tree: TAB runs no Python.

Instance and deployment names come from plain files in the state folder. `python -m pdctl.cli.completions` writes the
files of this checkout, with `--check` it only says which of them are not as they would be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pdctl.cli.completions.bash import bash
from pdctl.cli.completions.fish import fish
from pdctl.cli.completions.tree import Command, read_commands
from pdctl.cli.completions.zsh import zsh

__all__ = ["generate"]

FILES: dict[str, Callable[[Iterable[Command]], str]] = {
    "pdctl.bash": bash,
    "_pdctl": zsh,
    "pdctl.fish": fish,
}


def generate() -> dict[str, str]:
    """Return file name -> text of all completions."""
    commands = read_commands()
    return {name: write(commands) for name, write in FILES.items()}
