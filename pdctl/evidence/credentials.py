"""Take credentials out of text: by their values, where known, in every encoding; else by how they are introduced."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

ENVIRONMENT_KEY = "PDCTL_API_KEY"
"""The variable that holds the key which pdctl itself sends."""
MASK = b"***"
_LEAST_BYTES = 6
"""A shorter value would blacken innocent text."""

_NAME = (
    rb"(?:api[_-]?key|admin[_-]?key|access[_-]?key|private[_-]?key|secret(?:[_-]?key)?|token|"
    rb"password|passwd|passphrase|credentials?|cookie|authorization)"
)
_VALUE = rb"""(?:\\*"(?:[^"\\\n]|\\[^"\n])*?\\*"|\\*'(?:[^'\\\n]|\\[^'\n])*?\\*'|[^\s,;&"'()\[\]{}\\]+)"""
_JOIN = rb"""\\*["']?\s?(?:=|:(?!:)|%3D|%3A|["'],\s*(?=["']))[ \t]*"""
_ASSIGNED = re.compile(rb"((?<![a-z0-9#])" + _NAME + _JOIN + rb")(" + _VALUE + rb")", re.I)
_FLAGGED = re.compile(rb"(--(?:[a-z0-9]+-)*" + _NAME + rb"""(?:\s+|\\*["'],\s*))(""" + _VALUE + rb")", re.I)
_SCHEME = re.compile(rb"\b((?:Bearer|Basic|Token)(?:\s|%20|\+|\\u0020)+)[A-Za-z0-9._~+/%=-]{6,}", re.I)
_IN_URL = re.compile(rb"(\b[a-z][a-z0-9+.-]*(?:://|%3A%2F%2F))[^\s/@:'\"]*(?::|%3A)[^\s/@'\"]+(?=@|%40)", re.I)
_ISSUED = re.compile(
    # Keys that their issuers mark: OpenAI, Hugging Face, GitHub, AWS, Slack, JSON web tokens, PEM.
    rb"\b(?:sk-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{16}|xox[abprs]-[A-Za-z0-9-]{10,}"
    rb"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)"
    rb"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.S,
)
_ISSUERS = (b"sk-", b"hf_", b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"AKIA", b"xox", b"eyJ", b"-----BEGIN")
_HINT = re.compile(
    # In lower case. Looking for these first costs a tenth of the rules themselves.
    rb"(?<!#)(?:key|token|secret|passw[a-z]*|passphrase|credentials?|cookie|authorization)\\*[ \"'=:%]"
    rb"|bearer|basic|token[ +%]|://[^\s/]*[:%][^\s/]*(?:@|%40)|%3a%2f%2f"
)
_INNOCENT = re.compile(rb"""\\*["']?(?:none|null|true|false|\d{1,9}(?:\.\d+)?|\*+|)\\*["']?""", re.I)


class Credentials:
    """Removes credentials from bytes. `known` are values that must not appear in whatever encoding."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        forms = {form for value in known for form in _encodings(value.strip())}
        ordered = sorted(forms, key=len, reverse=True)
        self._known = re.compile(b"|".join(re.escape(form) for form in ordered)) if ordered else None

    def without(self, data: bytes) -> bytes:
        """Return the text with every credential masked; what follows a name of a secret counts as one."""
        if self._known is not None:
            data = self._known.sub(MASK, data)
        if any(mark in data for mark in _ISSUERS):
            data = _ISSUED.sub(MASK, data)
        if _HINT.search(data.lower()) is None:
            return data
        return b"\n".join(self._line(line) for line in data.split(b"\n"))

    def _line(self, line: bytes) -> bytes:
        if _HINT.search(line.lower()) is None:
            return line
        line = _SCHEME.sub(rb"\1" + MASK, line)
        line = _IN_URL.sub(rb"\1" + MASK, line)
        return _ASSIGNED.sub(_masked, _FLAGGED.sub(_masked, line))


def _masked(match: re.Match[bytes]) -> bytes:
    value = match[2]
    if _INNOCENT.fullmatch(value):
        return match[0]
    edge = re.match(rb"""\\*["']""", value)
    quote_mark = edge[0] if edge else b""
    return match[1] + quote_mark + MASK + quote_mark


def _encodings(value: str) -> set[bytes]:
    """Return a value as it is, JSON- and URL-escaped, and in base64 at each of its three alignments."""
    raw = value.encode()
    if len(raw) < _LEAST_BYTES:
        return set()
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("/", "\\/")
    texts = {value, escaped, escaped.replace("\\/", "/"), quote(value, safe=""), quote(value), quote_plus(value)}
    forms = {text.encode() for text in texts}
    forms |= {text.lower() for text in forms if b"%" in text}
    for shift in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            whole = encode(b"\0" * shift + raw)
            # Only the characters that depend on the value alone, whatever stands before and behind it.
            start = -(-8 * shift // 6)
            end = (8 * (shift + len(raw))) // 6
            if len(whole[start:end]) >= 8:
                forms.add(whole[start:end])
    return forms
