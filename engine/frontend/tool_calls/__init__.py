"""Tool calls: one file for each way in which models write them. A new family is a file and a row here."""

from __future__ import annotations

from engine.frontend.tool_calls.calls import ArgumentsPart, CallBegun, CallFormat, Part, Text, Tool, ToolCallParser
from engine.frontend.tool_calls.hermes import HERMES
from engine.frontend.tool_calls.llama3_json import LLAMA3_JSON

__all__ = [
    "FORMATS",
    "HERMES",
    "LLAMA3_JSON",
    "ArgumentsPart",
    "CallBegun",
    "CallFormat",
    "Part",
    "Text",
    "Tool",
    "ToolCallParser",
    "format_of",
]

FORMATS = (HERMES, LLAMA3_JSON)


def format_of(template_source: str | None) -> CallFormat:
    """Return how the model of this chat template writes calls; Hermes for one that says nothing of tools."""
    source = template_source or ""
    return next((each for each in FORMATS if any(sign in source for sign in each.signs)), HERMES)
