"""Bodies of HTTP answers, as the engines gave them."""

from __future__ import annotations

import msgspec


def json(body: str | None) -> object:
    """Return a body as a value; None for one that is none, or no JSON."""
    if not body:
        return None
    try:
        value: object = msgspec.json.decode(body.encode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value
