"""Credentials never reach the disk: they are replaced before a collector hands its bytes over."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

MASK = "***"

_NAME = (
    r"(?:api[_-]?keys?|admin[_-]?(?:api[_-]?)?key|hf[_-]?token|auth[_-]?token|access[_-]?token|secret\w*|"
    r"password|passwd|credentials?)"
)
_FLAG = re.compile(rf"--(?:[\w-]*-)?{_NAME}(?!-file)", re.I)
_ASSIGNED = re.compile(
    rf"""((?<![A-Za-z0-9]){_NAME}["']?\s*[=:]\s*)(?:"(?:[^"\\]|\\.)+"|'(?:[^'\\]|\\.)+'|(?!None\b|null\b|["'])[^\s,;)}}\]&]+)""".encode(),
    re.I,
)
_BEARER = re.compile(rb"(\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{6,}", re.I)
_IN_URL = re.compile(rb"(\b[a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s/@]+@", re.I)
# What a line with a secret has in it; the expressions above are tried on such lines only.
_WORDS = (b"key", b"_token", b"-token", b"secret", b"passw", b"credential", b"bearer", b"basic ", b"://")

ENVIRONMENT = re.compile(
    r"(?:NCCL|UCX|NIXL|SGLANG|SGL|VLLM|DYN|MOONCAKE|MC|CUDA|OMP|TORCH|TRTLLM|PDCTL|PDENGINE|MLX5|GLOO)_\w+"
)
"""The variables that are kept: switches of engines and of the layers below. All others stay unread."""
_SECRET_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.I)


def scrub(data: bytes) -> bytes:
    """Return text without credentials: values behind names of secrets, bearer tokens, passwords in URLs."""
    lower = data.lower()
    if not any(word in lower for word in _WORDS):
        return data
    return b"\n".join(_scrub_line(line) if _is_suspect(line) else line for line in data.split(b"\n"))


def _is_suspect(line: bytes) -> bool:
    lower = line.lower()
    return any(word in lower for word in _WORDS)


def _scrub_line(line: bytes) -> bytes:
    line = _ASSIGNED.sub(rb'\1"***"', line)
    return _IN_URL.sub(rb"\1***@", _BEARER.sub(rb"\1***", line))


def scrub_argv(argv: Sequence[str]) -> list[str]:
    """Return a command line whose secret flags have lost their values."""
    clean: list[str] = []
    hides_next = False
    for word in argv:
        name, is_joined, _ = word.partition("=")
        is_secret = bool(_FLAG.fullmatch(name))
        if hides_next and not word.startswith("--"):
            clean.append(MASK)
        elif is_secret and is_joined:
            clean.append(f"{name}={MASK}")
        else:
            clean.append(scrub(word.encode("utf-8", "replace")).decode("utf-8", "replace"))
        hides_next = is_secret and not is_joined
    return clean


def kept_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables worth keeping, those with secrets masked."""
    return {
        name: MASK if _SECRET_VARIABLE.search(name) else value
        for name, value in sorted(environment.items())
        if ENVIRONMENT.fullmatch(name)
    }
