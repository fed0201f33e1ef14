"""Records -> the TOML files of an incident directory. None is left out: what is absent is unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec


def document(head: Mapping[str, object], tables: Mapping[str, Iterable[Mapping[str, object]]] | None = None) -> bytes:
    """Return a document of top-level keys followed by arrays of tables."""
    lines = _pairs(head)
    for name, items in (tables or {}).items():
        for item in items:
            lines += ["", f"[[{name}]]", *_pairs(item)] if lines else [f"[[{name}]]", *_pairs(item)]
    return ("\n".join(lines) + "\n").encode()


def value_text(value: object) -> str:
    """Return one TOML value. Times are written in UTC, to the millisecond."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(value)
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case Mapping():
            return "{ " + ", ".join(f"{_text(str(key))} = {value_text(item)}" for key, item in value.items()) + " }"
        case list() | tuple():
            return "[" + ", ".join(value_text(item) for item in value) + "]"
        case bytes():
            return _text(value.decode("utf-8", "replace"))
        case _:
            return _text(str(value))


def _pairs(table: Mapping[str, object]) -> list[str]:
    return [f"{key} = {value_text(value)}" for key, value in table.items() if value is not None]


def _text(text: str) -> str:
    # JSON strings are TOML basic strings, but for DEL, which TOML wants escaped, and lone surrogates.
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return msgspec.json.encode(clean).decode().replace("\x7f", "\\u007f")
