"""Read a command line by the tables of `command_lines`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pdctl.dialects.command_lines import COMMAND_LINES, CommandLine


class Flags:
    """A command line's flags, `--name value` or `--name=value`."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._values: dict[str, str] = {}
        for at, word in enumerate(argv):
            if not word.startswith("-"):
                continue
            name, is_joined, value = word.partition("=")
            following = argv[at + 1] if at + 1 < len(argv) and not argv[at + 1].startswith("--") else ""
            self._values[name] = value if is_joined else following

    def text(self, names: Iterable[str]) -> str | None:
        """Return the value of the first of these flags that has one."""
        return next((self._values[name] for name in names if self._values.get(name)), None)

    def number(self, names: Iterable[str]) -> int | None:
        """Return that value if it is a number."""
        text = self.text(names)
        return int(text) if text and text.isdigit() else None

    def given(self, names: Iterable[str]) -> str | None:
        """Return the first of these flags that is given, with or without a value."""
        return next((name for name in names if name in self._values), None)


def command_line_of(argv: Sequence[str]) -> CommandLine | None:
    """Return the family that is started so, None for any other program."""
    words = [Path(word).name for word in argv[:4]]
    is_python = bool(words) and bool(re.fullmatch(r"python[\d.]*", words[0]))
    module = next((argv[at + 1] for at in range(1, min(len(argv) - 1, 8)) if argv[at] == "-m"), "") if is_python else ""
    # Of a script run by its interpreter the name comes second.
    programs = [] if module else words[1:] if is_python else words
    for line in COMMAND_LINES:
        if module in line.modules or any(tuple(programs[: len(name)]) == name for name in line.programs):
            return line
    return None
