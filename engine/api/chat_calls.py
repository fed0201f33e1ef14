"""Tool calls as OpenAI writes them, whole and in chunks."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from engine.frontend.tool_calls import ArgumentsPart, CallBegun, Text
from engine.frontend.tool_use import ToolUse


class FunctionCall(msgspec.Struct, kw_only=True):
    name: str
    arguments: str
    """JSON, as the model wrote it."""


class ToolCall(msgspec.Struct, kw_only=True):
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class FunctionDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str | None = None
    arguments: str


class ToolCallDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first of a call carries id, type and name; the others only more arguments."""

    index: int
    id: str | None = None
    type: str | None = None
    function: FunctionDelta


class CallReader:
    """One choice's text on its way out: content, and calls of tools where there are any.

    Without `parallel_tool_calls` only the first call is told; the model may still spend tokens on others.
    """

    def __init__(self, tools: ToolUse | None, salt: str) -> None:
        self._parser = tools.parser() if tools else None
        self._is_parallel = tools is None or tools.is_parallel
        self._salt = salt
        self.calls: list[ToolCall] = []

    def push(self, text: str, is_last: bool) -> tuple[str, list[ToolCallDelta]]:
        """Return the content that this text adds, and what it adds to calls."""
        if self._parser is None:
            return text, []
        parts = self._parser.push(text) if text else []
        if is_last:
            parts = parts + self._parser.flush()
        content = "".join(part.text for part in parts if isinstance(part, Text))
        return content, [
            self._delta(part) for part in parts if not isinstance(part, Text) and (self._is_parallel or part.index == 0)
        ]

    def _delta(self, part: CallBegun | ArgumentsPart) -> ToolCallDelta:
        if isinstance(part, CallBegun):
            call = ToolCall(id=self._id(part.index), function=FunctionCall(name=part.name, arguments=""))
            self.calls.append(call)
            function = FunctionDelta(name=part.name, arguments="")
            return ToolCallDelta(index=part.index, id=call.id, type=call.type, function=function)
        self.calls[part.index].function.arguments += part.text
        return ToolCallDelta(index=part.index, function=FunctionDelta(arguments=part.text))

    def _id(self, index: int) -> str:
        return "call_" + hashlib.sha256(f"{self._salt}-{index}".encode()).hexdigest()[:24]
