"""A file of results that several sittings fill: one line of JSON a result, on the disk as soon as it is known."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from pdctl.errors import PdctlError, UsageError

Result = TypeVar("Result", bound=msgspec.Struct)


class ResultFile(Generic[Result]):
    """Grows by whole lines."""

    def __init__(self, path: Path, kind: type[Result]) -> None:
        self.path = path
        self._kind = kind

    def begin(self) -> tuple[Result, ...]:
        """Return every result so far, once it is sure that more can be added. Raises PdctlError, UsageError."""
        found = self.results()
        self._add(b"")
        return found

    def append(self, result: Result) -> None:
        """Put a result on the disk. Raises PdctlError."""
        self._add(msgspec.json.encode(result) + b"\n")

    def _add(self, content: bytes) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(content)
        except OSError as error:
            raise PdctlError(f"cannot write {self.path}: {error.strerror}", "name another with --results") from error

    def results(self) -> tuple[Result, ...]:
        """Return every result; none where there is no file yet. Raises UsageError for a file that is something else."""
        if not self.path.exists():
            return ()
        try:
            lines = self.path.read_bytes().splitlines()
            return tuple(msgspec.json.decode(line, type=self._kind) for line in lines if line)
        except (OSError, msgspec.DecodeError) as error:
            kind = self._kind.__name__.lower()
            raise UsageError(
                f"{self.path} is no result file (a {kind} a line): {error}", "name another file"
            ) from error
