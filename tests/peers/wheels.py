"""The strings of a published release: pip finds the wheel, and only what is read is fetched. Nothing is installed.

Of Python the constants of every module count, of a compiled library its printable text. They are kept as text in the
folder that `PDCTL_PEER_WHEELS` names, 0.2 to 47 MB a release; delete it when this file changes.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path

import httpx
import msgspec

FOLDER = os.environ.get("PDCTL_PEER_WHEELS", "")
HOLE = "\0"
"""Stands in a constant for what is put in at run time."""
_END = "\x1e"
_PLATFORMS = ("manylinux1", "manylinux2014", *(f"manylinux_2_{minor}" for minor in range(17, 40)))
_BLOCK_BYTES = 1 << 20
_PRINTABLE = re.compile(rb"[\x09\x0a\x20-\x7e]{4,}")
_PERCENT = re.compile(r"%(?:\(\w+\))?[-+ #0]*\d*(?:\.\d+)?[sdrfgxi]")
_BRACES = re.compile(r"\{[\w.!]*(?::[^{}]*)?\}")


class Strings(msgspec.Struct, frozen=True):
    """What a release says, as constants."""

    text: str
    """All of them, each between two marks."""
    is_compiled: bool
    """Names of compiled code stand beside each other without a border."""

    def __or__(self, other: Strings) -> Strings:
        return Strings(self.text + other.text, self.is_compiled or other.is_compiled)

    @property
    def folded(self) -> str:
        """All of them in small letters."""
        return _folded(self.text)

    def is_constant(self, text: str) -> bool:
        """Return whether a whole constant is this text."""
        return f"{_END}{text}{_END}" in self.text

    def has_name(self, name: str) -> bool:
        """Return whether a constant is this name; in compiled code, whether it holds it."""
        return name in self.text if self.is_compiled else self.is_constant(name)

    def says(self, wording: Iterable[tuple[str, ...]]) -> bool:
        """Return whether each run of parts stands in one constant, in order; compiled code has no such borders."""
        return all(self._stands(run) for run in wording)

    def _stands(self, run: tuple[str, ...]) -> bool:
        if not all(self.has(part) for part in run):
            return False
        in_one = f"[^{_END}]*?".join(re.escape(part) for part in run)
        return self.is_compiled or len(run) == 1 or re.search(in_one, self.text) is not None

    def has(self, part: str) -> bool:
        """Return whether a constant holds this text, or it is put together.

        Then its end begins a constant that is put into another, or it is several joined by commas.
        """
        if part in self.text:
            return True
        for match in _JOINT.finditer(part):
            left, right = part[: match.end()], part[match.end() :]
            if len(left) >= _LONG and f"{left}{HOLE}" in self.text and f"{_END}{right}" in self.text:
                return True
        return ", " in part and all(piece in self.text for piece in part.split(", "))


@lru_cache(maxsize=16)
def _folded(text: str) -> str:
    return text.lower()


_JOINT = re.compile(r"[ =]")
_LONG = 10
"""Letters before what is put in: with fewer, `KV checksum mismatch` is found in any program that says `KV %s`."""


@cache
def strings_of(package: str, version: str) -> Strings:
    """Return the strings of a release on PyPI."""
    kept = Path(FOLDER) / f"{package}-{version}.txt"
    if not kept.exists():
        made, is_compiled = _read(package, version)
        kept.parent.mkdir(parents=True, exist_ok=True)
        draft = kept.with_suffix(".part")
        written = _END.join(("compiled" if is_compiled else "python", *sorted(made)))
        draft.write_bytes(written.encode(errors="backslashreplace"))
        draft.rename(kept)
    kind, _, text = kept.read_bytes().decode().partition(_END)
    return Strings(f"{_END}{text}{_END}", kind == "compiled")


def _read(package: str, version: str) -> tuple[set[str], bool]:
    """Return all strings of a wheel, and whether they come from a compiled library too."""
    made: set[str] = set()
    is_compiled = package in _COMPILED
    with httpx.Client(verify=ssl.create_default_context(), follow_redirects=True, timeout=120) as client:
        remote = io.BufferedReader(_Remote(_address(package, version), client), _BLOCK_BYTES)
        with zipfile.ZipFile(remote) as wheel:
            for member in sorted(wheel.infolist(), key=lambda member: member.header_offset):
                name = member.filename
                if name.endswith(".py") and not _SILENT.search(name):
                    made.update(constants_of(wheel.read(member).decode("utf-8", "replace")))
                elif is_compiled and _LIBRARY.search(name):
                    made.update(found.decode() for found in _PRINTABLE.findall(wheel.read(member)))
    return made, is_compiled


_SILENT = re.compile(r"/(?:models|kernels|third_party)/")
"""Half of an engine's Python: it says nothing that we read."""
_LIBRARY = re.compile(r"\.so(?:\.[\d.]+)?$")
_COMPILED = ("ai-dynamo-runtime", "smg", "sglang-router", "vllm-router", "nixl-cu12", "mooncake-transfer-engine")
"""Packages whose libraries say what we read. Others have libraries too (kernels), which say nothing."""


def _address(package: str, version: str) -> str:
    """Return where pip would take the wheel from; it downloads only its metadata."""
    platforms = [word for name in _PLATFORMS for word in ("--platform", f"{name}_x86_64")]
    with tempfile.TemporaryDirectory() as unused:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
        where = ["--only-binary", ":all:", "--python-version", "3.12", *platforms, "--target", unused, "--report", "-"]
        ran = subprocess.run([*pip, *where, f"{package}=={version}"], check=True, stdout=subprocess.PIPE, timeout=280)
    return str(json.loads(ran.stdout)["install"][0]["download_info"]["url"])


class _Remote(io.RawIOBase):
    """A file behind a URL, of which pieces are fetched."""

    def __init__(self, url: str, client: httpx.Client) -> None:
        self._url, self._client, self._at = url, client, 0
        self._size = int(client.head(url).raise_for_status().headers["Content-Length"])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        answer = self._client.get(self._url, headers={"Range": f"bytes={self._at}-{end - 1}"}).raise_for_status()
        assert answer.status_code == 206, f"{self._url} does not serve parts of itself"
        buffer[: len(answer.content)] = answer.content
        self._at += len(answer.content)
        return len(answer.content)


def constants_of(source: str) -> Iterator[str]:
    """Yield the string constants of a Python module but its docstrings; what is put in later is a `HOLE`.

    Names of classes (of errors, in tracebacks) and of fields (keys, in JSON) count too.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return  # templates of code
    inner: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inner.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            inner.update(id(part) for part in node.values)
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield _BRACES.sub(HOLE, _PERCENT.sub(HOLE, node.value))
        elif isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
