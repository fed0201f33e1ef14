"""Take credentials out of text: by their values, where known, in every encoding; else by how they are introduced.

This is the one place that knows what a credential looks like. Collecting masks with it before the first write, sharing
masks once more. Text is masked whole: a key block may go over many lines. A text without a suspicious word costs a few
searches for plain words, 10 ms for 4 MB.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from urllib.parse import quote, quote_plus

ENVIRONMENT_KEY = "PDCTL_API_KEY"
"""The variable that holds the key which pdctl itself sends."""
MASK = b"***"
_LEAST_BYTES = 6
"""A shorter value would blacken innocent text."""
_CUT_BYTES = 512

_NAME = (
    rb"(?:(?:api|admin|access|private|signing|session|master|account|encryption|client)[_-]?keys?|secret\w{0,24}|"
    rb"token|password|passwd|passphrase|credentials?|cookie|authorization)"
)
_COLOUR = rb"(?:\x1b\[[0-9;]*m)*"
"""Routers colour the names of fields, into files too."""
_VALUE = (
    # Quoted; quoted within a quoted text; a quote that is not closed; bare.
    rb"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|(?P<deep>\\+["'])[^\n]*?(?<!\\)(?P=deep)"""
    rb"""|\\*["'][^"'\\\n]*|[^\s,;&"'()\[\]{}\\\x1b]+)"""
)
_JOIN = rb"""\\*["']?""" + _COLOUR + rb"""\s?(?:=|:(?!:)|%3D|%3A|["'],\s*(?=["']))[ \t]*""" + _COLOUR + rb"(?:Some\()?"
"""Up to the value; Rust prints `name: Some("value")`."""
_ALONE = rb"(?:(?<![a-z0-9#])|(?<=\[\dm)|(?<=\[\d\dm))"
_ASSIGNED = re.compile(rb"(" + _ALONE + _NAME + _JOIN + rb")(" + _VALUE + rb")", re.I)
_LISTED = re.compile(rb"(" + _ALONE + _NAME + _JOIN + rb")\[[^\]\n]*\]", re.I)
_FLAGGED = re.compile(rb"(--(?:[a-z0-9]+-)*" + _NAME + rb"""(?:\s+|\\*["'],\s*))(""" + _VALUE + rb")", re.I)
_COOKIES = re.compile(rb"(" + _ALONE + rb"""cookie:[ \t]*)[^"'\\\n]+""", re.I)
_SCHEME = re.compile(
    # "bad token provided" and "basic settings" are innocent: behind these two a credential has more than small letters.
    rb"\b((?:Bearer|(?:Basic|Token)(?=(?:\s|%20|\+|\\u0020)+[a-z._~+/%=-]*(?-i:[A-Z0-9])))(?:\s|%20|\+|\\u0020)+)"
    rb"[A-Za-z0-9._~+/%=-]{6,}"
    rb"|(" + _ALONE + rb"authorization" + _JOIN + rb"""\\*["']?(?:Bearer|Basic|Token)\s+)[^\s,;"'\\]+""",
    re.I,
)
_IN_URL = re.compile(
    rb"(\b[a-z][a-z0-9+.-]{0,30}(?:://|%3A%2F%2F))[^\s/@:'\"]{0,512}(?::|%3A)[^\s/@'\"]{1,2048}(?=@|%40)", re.I
)
_IN_CUT_URL = re.compile(rb"(://)[^\s/@:'\"]*:(?!\d{1,5}\b)[^\s/@'\"]+\Z")
"""The last words of a text that ends too early: what follows the colon may be half a password."""
_PEM = re.compile(
    # Whole, or what is left where its end was cut away.
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?:[^-]|-(?!----BEGIN)){0,16384}?-----END [A-Z ]*PRIVATE KEY-----"
    rb"|[A-Za-z0-9+/=\s\\]*)"
)
_PEM_END = re.compile(rb"-----END [A-Z ]*PRIVATE KEY-----")
_PEM_BODY_BACKWARDS = re.compile(rb"(?:\s|[nr]\\)*[A-Za-z0-9+/=]*(?:(?:\s|[nr]\\)+[A-Za-z0-9+/=]{16,})*")
_PEM_BYTES = 16384
_ISSUED = {
    # Keys that their issuers mark: OpenAI, Hugging Face, GitHub, AWS, Slack, JSON web tokens.
    b"sk-": rb"sk-(?<![A-Za-z0-9_]sk-)[A-Za-z0-9_-]{16,}",
    b"hf_": rb"hf_(?<![A-Za-z0-9_]hf_)[A-Za-z0-9]{16,}",
    b"gh": rb"gh[pousr]_[A-Za-z0-9]{20,}",
    b"AKIA": rb"AKIA[A-Z0-9]{16}",
    b"xox": rb"xox[abprs]-[A-Za-z0-9-]{10,}",
    b"eyJ": rb"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
}
_BY_ISSUER = {mark: re.compile(pattern) for mark, pattern in _ISSUED.items()}
_AFTER_NAME = rb"""\\*["']?""" + _COLOUR + rb"""(?:\s?[=:]|%3[ad]|\\*["'],|[ \t]+[^\s]{6})"""
_HINTS = {
    # In lower case; each begins with its word, which is what makes the search fast. Only lines with one are looked at.
    b"key": rb"keys?" + _AFTER_NAME,
    b"token": rb"token(?<!#token)(?:" + rb"""\\*["']?""" + _COLOUR + rb"""(?:\s?[=:]|%3[ad]|\\*["'],)|"""
    rb"""(?:\s|%20|\+|\\u0020)+[a-z0-9._~+/%=-]{6})""",
    b"secret": rb"secret",
    b"passw": rb"passw(?:or)?d" + _AFTER_NAME,
    b"passphrase": rb"passphrase" + _AFTER_NAME,
    b"credential": rb"credentials?" + _AFTER_NAME,
    b"cookie": rb"cookie",
    b"authorization": rb"authorization",
    b"bearer": rb"bearer",
    b"basic": rb"basic(?:\s|%20|\+|\\u0020)",
    b"://": rb"://[^\s/@:'\"]{0,512}(?::|%3a)[^\s/@'\"]{1,2048}(?:@|%40)",
    b"%3a%2f%2f": rb"%3a%2f%2f",
}
_BY_WORD = {word: re.compile(pattern) for word, pattern in _HINTS.items()}
_INNOCENT = re.compile(
    rb"""\\*["']?(?:none|null|true|false|bearer|basic|token|"""
    rb"""-?\d{1,9}|-?\d+\.\d+(?:e[+-]?\d+)?|\*+|)\\*["']?""",
    re.I,
)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.I)
_SECRET_FLAG = re.compile(rb"--?(?:[\w-]*-)?" + _NAME, re.I)


class Credentials:
    """Removes credentials from bytes. `known` are values that must not appear in whatever encoding."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        forms = {form for value in known for form in _encodings(value.strip())}
        self._known = sorted(forms, key=len, reverse=True)

    def without(self, data: bytes) -> bytes:
        """Return the text with every credential masked; what follows a name of a secret counts as one.

        TOML and JSON stay readable: a mask has the quotes of what it replaces.
        """
        for form in self._known:
            data = data.replace(form, MASK)
        if b"PRIVATE KEY-----" in data:
            data = _without_ends_of_keys(_PEM.sub(MASK, data))
        for mark, pattern in _BY_ISSUER.items():
            if mark in data:
                data = pattern.sub(MASK, data)
        data = _without_introduced(data)
        return data[:-_CUT_BYTES] + _IN_CUT_URL.sub(rb"\1" + MASK, data[-_CUT_BYTES:])


def argv_without(argv: Sequence[str]) -> list[str]:
    """Return a command line whose secret flags have lost their values, words with spaces included."""
    clean: list[str] = []
    hides_next = False
    for word in argv:
        name, is_joined, _ = word.partition("=")
        is_secret = bool(_SECRET_FLAG.fullmatch(name.encode("utf-8", "replace")))
        if hides_next and not word.startswith("--"):
            clean.append(MASK.decode())
        elif is_secret and is_joined:
            clean.append(f"{name}={MASK.decode()}")
        else:
            clean.append(_without_introduced(word.encode("utf-8", "replace")).decode("utf-8", "replace"))
        hides_next = is_secret and not is_joined
    return clean


def _without_ends_of_keys(data: bytes) -> bytes:
    """Mask key blocks whose beginning was cut away, from their end backwards."""
    parts: list[bytes] = []
    done = 0
    for end in _PEM_END.finditer(data):
        before = data[max(done, end.start() - _PEM_BYTES) : end.start()]
        body = _PEM_BODY_BACKWARDS.match(before[::-1])
        parts += [data[done : end.start() - (len(body[0]) if body else 0)], MASK]
        done = end.end()
    return b"".join([*parts, data[done:]]) if parts else data


def _without_introduced(data: bytes) -> bytes:
    """Mask by what stands before a credential, on the lines that have a word of it."""
    parts: list[bytes] = []
    done = 0
    for start, end in sorted(_suspects(data.lower())):
        parts += [data[done:start], _line(data[start:end])]
        done = end
    return b"".join([*parts, data[done:]]) if parts else data


def _suspects(lower: bytes) -> set[tuple[int, int]]:
    """Return where the lines with a telling word begin and end."""
    lines: set[tuple[int, int]] = set()
    for word, pattern in _BY_WORD.items():
        position = 0 if word in lower else len(lower)
        while match := pattern.search(lower, position):
            end = lower.find(b"\n", match.start())
            position = end if end >= 0 else len(lower)
            lines.add((lower.rfind(b"\n", 0, match.start()) + 1, position))
    return lines


def _line(line: bytes) -> bytes:
    line = _SCHEME.sub(lambda match: (match[1] or match[2]) + MASK, line)
    line = _IN_URL.sub(rb"\1" + MASK, line)
    line = _COOKIES.sub(rb"\1" + MASK, line)
    line = _LISTED.sub(rb"\1[]", line)
    return _ASSIGNED.sub(_masked, _FLAGGED.sub(_masked, line))


def _masked(match: re.Match[bytes]) -> bytes:
    value = match[2]
    if _INNOCENT.fullmatch(value):
        return match[0]
    if _NUMBER.fullmatch(value):
        # A number that lost its digits must stay a number, or the whole document could not be read.
        return match[1] + b"0"
    edge = re.match(rb"""\\*["']""", value)
    quote_mark = edge[0] if edge else b""
    return match[1] + quote_mark + MASK + (quote_mark if value.endswith(quote_mark) and value != quote_mark else b"")


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
