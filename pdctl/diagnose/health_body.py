"""The word that our own engine's /health gives for its state."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pdctl.evidence.records import Get


class _Body(msgspec.Struct, frozen=True):
    status: str = ""


def status_of(gets: Iterable[Get]) -> str:
    """Return loading | ok | unfit | draining | failed; empty for an engine that says none of them."""
    body = next((item.body for item in gets if item.path == "/health" and item.body), None)
    if body is None:
        return ""
    try:
        return msgspec.json.decode(body.encode(), type=_Body).status
    except (msgspec.MsgspecError, UnicodeError):
        return ""
