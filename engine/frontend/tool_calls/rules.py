"""Lark rules of answers whose tool calls have the form that is demanded."""

from __future__ import annotations

import json

from engine.frontend.grammars import JSON_STYLE
from engine.frontend.tool_calls.calls import Tool


def call_rules(start: str, tools: list[Tool], arguments_key: str, before: str, after: str) -> str:
    """Return `start`, the rules of an answer made of `call`, with the rules of that: one call of one of the tools."""
    names = " | ".join(f"tool{number}" for number in range(len(tools)))
    opening, closing = (f"{json.dumps(text)} " if text else "" for text in (before, after))
    lines = [start, f"call: {opening}({names}) {closing}".rstrip()]
    for number, tool in enumerate(tools):
        begin = f'{{"name": {json.dumps(tool.name, ensure_ascii=False)}, "{arguments_key}": '
        # A schema of its own, not a part of a larger one: its "#/$defs/..." are found from its own root.
        schema = {"type": "object", **tool.parameters, "x-guidance": JSON_STYLE}
        lines.append(f'tool{number}: {json.dumps(begin)} arguments{number} "}}"')
        lines.append(f"arguments{number}: %json {json.dumps(schema)}")
    return "\n".join(lines) + "\n"
