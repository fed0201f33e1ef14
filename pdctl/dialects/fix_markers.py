"""Upstream fixes that can be told from the text of one file of the running code."""

from __future__ import annotations

import msgspec


class FixMarker(msgspec.Struct, frozen=True):
    """A text that a file has since a fix, and had not before."""

    name: str
    dialect: str
    package: str
    file: str
    """Below the package."""
    text: bytes
    source: str


FIX_MARKERS = (
    FixMarker(
        "nixl_abort_handler",
        "sglang",
        "sglang",
        "srt/disaggregation/nixl/conn.py",
        b"decode-side abort notification",
        "sglang PR #30352: prefill's bootstrap thread understands ABORT. Not in the wheels 0.5.13 and 0.5.15.post1, "
        "in those of 0.5.16 and 0.5.23",
    ),
)
