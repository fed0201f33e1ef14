"""What an answer with tool calls is made of, as it comes, and how a model writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engine.frontend.bodies import JSON


@dataclass(frozen=True, slots=True)
class Text:
    """Part of the answer that is no call."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """The model calls a tool; `index` counts the calls of one answer."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsPart:
    """More of the JSON text of the arguments of call `index`."""

    index: int
    text: str


Part = Text | CallBegun | ArgumentsPart


class ToolCallParser(Protocol):
    """Takes one answer apart. What is no call of a known tool comes out as text, unchanged."""

    def push(self, text: str) -> list[Part]:
        """Return what is settled by more text."""

    def flush(self) -> list[Part]:
        """Return what is left at the end of the answer."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the client offers, by name, and the schema of its arguments."""

    name: str
    parameters: JSON


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How a family of models writes its calls."""

    name: str
    signs: tuple[str, ...]
    """Words in a chat template that tell the family."""
    parser: Callable[[frozenset[str]], ToolCallParser]
    """Makes a parser that knows the names of the tools."""
    rules: Callable[[list[Tool], bool, bool], str]
    """Returns Lark rules of an answer that is one call of one of the tools, or (first True) one or more; or (second
    True) that may have them, and text.
    """
