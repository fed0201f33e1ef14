"""Lark rules of answers that must be tool calls."""

from __future__ import annotations

import json

from engine.frontend.grammars import JSON_STYLE
from engine.frontend.tool_calls.calls import Tool


def call_rules(tools: list[Tool], arguments_key: str, before: str, after: str, between: str | None) -> str:
    """Return the rules of one call of one of the tools; `between` given, of one or more with that between them."""
    more = "" if between is None else f" ({json.dumps(between)} call)*"
    names = " | ".join(f"tool{number}" for number in range(len(tools)))
    opening, closing = (f"{json.dumps(text)} " if text else "" for text in (before, after))
    lines = [f"start: call{more}", f"call: {opening}({names}) {closing}".rstrip()]
    for number, tool in enumerate(tools):
        schema = {
            "type": "object",
            "properties": {"name": {"const": tool.name}, arguments_key: tool.parameters},
            "required": ["name", arguments_key],
            "additionalProperties": False,
            "x-guidance": JSON_STYLE,
        }
        lines.append(f"tool{number}: %json {json.dumps(schema)}")
    return "\n".join(lines) + "\n"
