"""One call as a JSON object, `{"name": ..., "arguments": {...}}`, read as it comes."""

from __future__ import annotations

import json
from enum import Enum, auto

from engine.frontend.tool_calls.calls import ArgumentsPart, CallBegun, Part

ARGUMENT_KEYS = ("arguments", "parameters")
NO_ARGUMENTS = "{}"


class Scan(Enum):
    """reading -> done | broken"""

    READING = auto()
    DONE = auto()
    BROKEN = auto()
    """No object, or none with the name of a known tool; `raw` has what was read."""


class CallScanner:
    """Gives out the name and then the arguments' text while it is written. Constant work a character."""

    def __init__(self, index: int, names: frozenset[str]) -> None:
        self.raw = ""
        self.state = Scan.READING
        self._index = index
        self._names = names
        self._depth = 0
        self._in_string = False
        self._is_escaped = False
        self._key: str | None = None
        """Of the member whose value is being read; None before its colon."""
        self._part: list[str] = []
        """Characters of that key or value."""
        self._name: str | None = None
        self._arguments: list[str] = []
        """Read, and not yet given out."""
        self._blanks: list[str] = []
        """White space in the arguments that may be their end."""
        self._has_arguments = False
        self._is_begun = False

    def push(self, text: str) -> tuple[list[Part], str]:
        """Read on; return the parts that are settled, and the text behind the object."""
        at = 0
        while at < len(text) and self.state is Scan.READING:
            self.raw += text[at]
            self._take(text[at])
            at += 1
        return self._settled(), text[at:]

    @property
    def is_begun(self) -> bool:
        """The name was given out: it is a call, however it ends."""
        return self._is_begun

    def _take(self, char: str) -> None:
        if self._depth == 0:
            self._open(char)
            return
        is_top = self._depth == 1 and not self._in_string
        if is_top and char in ",}":
            self._member_ended()
        elif is_top and char == ":" and self._key is None:
            self._key = _string("".join(self._part))
            self._part = []
        else:
            self._collect(char)
        self._follow(char)

    def _open(self, char: str) -> None:
        if char == "{":
            self._depth = 1
        elif not char.isspace():
            self.state = Scan.BROKEN

    def _collect(self, char: str) -> None:
        if self._key not in ARGUMENT_KEYS:
            self._part.append(char)
        elif char.isspace() and not self._in_string:
            # Blanks around the value are none of it.
            if self._has_arguments:
                self._blanks.append(char)
        else:
            self._arguments += [*self._blanks, char]
            self._blanks = []
            self._has_arguments = True

    def _follow(self, char: str) -> None:
        """Keep track of strings and of how deep we are."""
        if self._in_string:
            self._in_string = self._is_escaped or char != '"'
            self._is_escaped = char == "\\" and not self._is_escaped
        elif char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            if self._depth == 0 and self.state is Scan.READING:
                self.state = Scan.DONE if self._name is not None else Scan.BROKEN

    def _member_ended(self) -> None:
        if self._key == "name":
            self._name = _string("".join(self._part))
            if self._name not in self._names:
                self.state = Scan.BROKEN
        self._key, self._part, self._blanks = None, [], []

    def _settled(self) -> list[Part]:
        if self._name is None or self.state is Scan.BROKEN:
            return []
        parts: list[Part] = []
        if not self._is_begun:
            self._is_begun = True
            parts.append(CallBegun(self._index, self._name))
        if self.state is Scan.DONE and not self._has_arguments:
            self._arguments = [NO_ARGUMENTS]
        if self._arguments:
            parts.append(ArgumentsPart(self._index, "".join(self._arguments)))
            self._arguments = []
        return parts


def _string(text: str) -> str | None:
    """Return the value of a JSON string; None for anything else."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, str) else None
