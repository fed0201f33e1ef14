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
        begin = f'{{"name": {json.dumps(tool.name, ensure_ascii=False)}, "{arguments_key}": '
        # A schema of its own, not a part of a larger one: its "#/$defs/..." are found from its own root.
        schema = {"type": "object", **tool.parameters, "x-guidance": JSON_STYLE}
        lines.append(f'tool{number}: {json.dumps(begin)} arguments{number} "}}"')
        lines.append(f"arguments{number}: %json {json.dumps(schema)}")
    return "\n".join(lines) + "\n"
