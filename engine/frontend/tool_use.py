"""What a chat body says of tools: which are offered, and whether one must be called."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import RequestError
from engine.frontend.bodies import ChatBody, FunctionBody, NamedTool, ToolBody
from engine.frontend.grammars import grammar_of_lark
from engine.frontend.tool_calls import CallFormat, Tool, ToolCallParser

MAX_TOOLS = 128
"""OpenAI's limit."""
CHOICES = ("auto", "none", "required")
NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
"""Of a function that is defined without any (OpenAI)."""
ANY_PARAMETERS = {"type": "object"}


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools of one request."""

    format: CallFormat
    offered: list[ToolBody]
    """Shown to the model."""
    is_parallel: bool
    """Whether one answer may have several calls."""
    grammar: str | None
    """Of an answer that must be a call, or whose calls must follow a schema (`strict`)."""

    def parser(self) -> ToolCallParser:
        """Return a parser for one answer."""
        return self.format.parser(frozenset(tool.function.name for tool in self.offered))


def tool_use_of(body: ChatBody, format_: CallFormat) -> ToolUse | None:
    """Return how tools are used; None when no tool may be called. Raises RequestError (400)."""
    choice = "auto" if body.tool_choice is None else body.tool_choice
    tools = body.tools or []
    _check(tools, choice)
    if not tools or choice == "none":
        return None
    forced = _forced(tools, choice)
    is_parallel, grammar = body.parallel_tool_calls is not False, None
    has_format = body.response_format is not None and body.response_format.type != "text"
    if forced:
        if has_format:
            message = "response_format: an answer that must call a tool has the form of the call"
            raise RequestError(400, "invalid_value", message, "response_format")
        is_many = choice == "required" and is_parallel
        grammar = grammar_of_lark(format_.rules([_tool(tool.function) for tool in forced], is_many, False), "tools")
    elif any(tool.function.strict for tool in tools) and not has_format:
        known = [_tool(tool.function, is_enforced=bool(tool.function.strict)) for tool in tools]
        grammar = grammar_of_lark(format_.rules(known, is_parallel, True), "tools")
    return ToolUse(format_, tools, is_parallel, grammar)


def _tool(function: FunctionBody, is_enforced: bool = True) -> Tool:
    return Tool(function.name, (function.parameters or NO_PARAMETERS) if is_enforced else ANY_PARAMETERS)


def _forced(tools: list[ToolBody], choice: str | NamedTool) -> list[ToolBody]:
    """Return the tools of which one must be called; none when the model may choose."""
    if isinstance(choice, NamedTool):
        return [tool for tool in tools if tool.function.name == choice.function.name]
    return tools if choice == "required" else []


def _check(tools: list[ToolBody], choice: str | NamedTool) -> None:
    if len(tools) > MAX_TOOLS:
        raise _bad("tools", f"{len(tools)} tools, at most {MAX_TOOLS} are allowed")
    for tool in tools:
        if tool.type != "function":
            raise _bad("tools", f"a tool of type '{tool.type}' is not supported, only 'function'")
        if not 0 < len(tool.function.name) <= 64:
            raise _bad("tools", "the name of a function has 1 to 64 characters")
    if isinstance(choice, str) and choice not in CHOICES:
        raise _bad("tool_choice", f"'{choice}' is none of {', '.join(CHOICES)}")
    if not tools and choice not in ("auto", "none"):
        raise _bad("tool_choice", "a call is demanded, but there are no tools")
    if isinstance(choice, NamedTool) and choice.type != "function":
        raise _bad("tool_choice", f"a choice of type '{choice.type}' is not supported, only 'function'")
    if isinstance(choice, NamedTool) and choice.function.name not in {tool.function.name for tool in tools}:
        raise _bad("tool_choice", f"'{choice.function.name}' is the name of no tool in tools")


def _bad(name: str, message: str) -> RequestError:
    return RequestError(400, "invalid_value", f"{name}: {message}", name)
