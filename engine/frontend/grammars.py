"""`response_format` and forced tool calls to grammars for llguidance.

They are well-formed; whether they can be enforced is asked of `engine.frontend.grammar_check`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from engine.errors import RequestError
from engine.frontend.bodies import JSON, ResponseFormat

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

MAX_GRAMMAR_BYTES = 1 << 16
JSON_STYLE: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""As Python writes JSON. Free white space lets a weak model write blanks until its tokens are spent."""


def grammar_of_format(wanted: ResponseFormat | None) -> str | None:
    """Return the grammar of a `response_format`; None for plain text. Raises RequestError (400)."""
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return grammar_of_schema({"type": "object"}, "response_format")
    if wanted.type != "json_schema":
        message = f"response_format: '{wanted.type}' is not supported, only 'text', 'json_object' and 'json_schema'"
        raise RequestError(400, "unsupported", message, "response_format")
    if wanted.json_schema is None or wanted.json_schema.schema is None:
        message = "response_format: type 'json_schema' needs json_schema.schema"
        raise RequestError(400, "invalid_value", message, "response_format")
    return grammar_of_schema(wanted.json_schema.schema, "response_format")


def grammar_of_schema(schema: JSON | str, name: str) -> str:
    """Return the grammar of a JSON schema. Raises RequestError (400) that names the field `name`."""
    # Imported where it is needed: 30 MB that few requests want.
    from llguidance import LLMatcher

    text = schema if isinstance(schema, str) else json.dumps(schema)
    _check_size(text, name)
    try:
        return LLMatcher.grammar_from_json_schema(text, defaults=JSON_STYLE)
    except (ValueError, TypeError) as error:
        raise RequestError(400, "invalid_schema", f"{name}: not a JSON schema: {error}", name) from error


def grammar_of_lark(rules: str, name: str) -> str:
    """Return the grammar of Lark rules. Raises RequestError (400) that names the field `name`."""
    from llguidance import LLMatcher

    _check_size(rules, name)
    return LLMatcher.grammar_from_lark(rules)


def _check_size(text: str, name: str) -> None:
    if len(text) > MAX_GRAMMAR_BYTES:
        message = f"{name}: the schema has {len(text)} characters, at most {MAX_GRAMMAR_BYTES} are allowed"
        raise RequestError(400, "invalid_schema", message, name)
