"""The files of one instance -> its records. Whatever cannot be read is noted and left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TypeVar

import msgspec

from pdctl.evidence import toml_files, traces
from pdctl.evidence.dumps import parse_dump, parse_dump_json
from pdctl.evidence.exposition import parse_exposition
from pdctl.evidence.loglines import parse_log
from pdctl.evidence.records import Capture, Exposition, Get, LogLine, Place, Problem, ProcessStack
from pdctl.evidence.rooms import RoomList, room_list
from pdctl.evidence.server_info import ServerInfo, server_info
from pdctl.evidence.toml_files import Table
from pdctl.evidence.traces import Mark, Trace

Files = Mapping[str, bytes]
"""Path below the incident directory, with `/` -> content."""

T = TypeVar("T")
Build = Callable[[Table, str], tuple[T, tuple[Problem, ...]]]
"""A TOML document and its path -> a record, and what was wrong with it."""
Read = Callable[[bytes, str], tuple[tuple[T, ...], tuple[Problem, ...]]]
"""A file and its path -> records, and what was wrong with it."""


class Folder:
    """The files of one instance, and what was wrong with them."""

    def __init__(self, name: str, files: Files, problems: list[Problem]) -> None:
        self._name = name
        self._files = files
        self.problems = problems

    def _get(self, name: str) -> bytes | None:
        return self._files.get(f"{self._name}/{name}")

    def rows(self, name: str, build: Build[tuple[T, ...]]) -> tuple[T, ...]:
        """Return the records of a TOML file; none when there is no such file."""
        return self.record(name, build) or ()

    def record(self, name: str, build: Build[T]) -> T | None:
        """Return what `build` makes of a TOML file; None when there is none, or it cannot be read."""
        data = self._get(name)
        if data is None:
            return None
        path = f"{self._name}/{name}"
        document, wrong = toml_files.read_toml(data, path)
        self.problems.extend(wrong)
        if wrong:
            return None
        made, bad = build(document, path)
        self.problems.extend(bad)
        return made

    def capture(self) -> Capture:
        return self.record("capture.toml", toml_files.capture) or Capture()

    def metrics(self, name: str) -> Exposition | None:
        data = self._get(name)
        if data is None:
            return None
        made, wrong = parse_exposition(data, f"{self._name}/{name}")
        self.problems.extend(wrong)
        return made

    def loads(self, name: str) -> dict[str, float]:
        data = self._get(name)
        if data is None:
            return {}
        try:
            return flatten(msgspec.json.decode(data))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
            self.problems.append(Problem(Place(f"{self._name}/{name}"), f"is not JSON: {error}"))
            return {}

    def log(self, reference: datetime, capture: Capture) -> tuple[tuple[LogLine, ...] | None, bool]:
        names = sorted(
            name
            for name in self._files
            if name.startswith((f"{self._name}/log.", f"{self._name}/kernel.")) and name.endswith(".txt")
        )
        if not names:
            return None, False
        lines: list[LogLine] = []
        is_any_cut = False
        for name in names:
            made, is_cut = parse_log(self._files[name], name, reference, capture.log_offset_min)
            lines.extend(made)
            is_any_cut |= is_cut
        return tuple(lines), is_any_cut

    def stacks(self, name: str) -> tuple[ProcessStack, ...]:
        data = self._get(f"{name}.json")
        if data is not None:
            made, wrong = parse_dump_json(data, f"{self._name}/{name}.json")
            self.problems.extend(wrong)
            return made
        data = self._get(f"{name}.txt")
        return parse_dump(data, f"{self._name}/{name}.txt") if data is not None else ()

    def rooms(self, name: str) -> RoomList | None:
        data = self._get(name)
        if data is None:
            return None
        made, wrong = room_list(data, f"{self._name}/{name}")
        self.problems.extend(wrong)
        return made

    def server_info(self, gets: Iterable[Get]) -> ServerInfo | None:
        """Return what the engine says of its settings, from a file of its own or from among the answers."""
        file, data = "server_info.json", self._get("server_info.json")
        if data is None:
            file, data = "http.toml", next((item.body.encode() for item in gets if _is_info(item) and item.body), None)
        if data is None:
            return None
        made, wrong = server_info(data, f"{self._name}/{file}")
        self.problems.extend(wrong)
        return made

    def marks(self, name: str) -> tuple[Mark, ...]:
        return self._rows_of(name, traces.marks)

    def traces(self, name: str) -> tuple[Trace, ...]:
        return self._rows_of(name, traces.traces)

    def _rows_of(
        self, name: str, read: Callable[[bytes, str], tuple[tuple[T, ...], tuple[Problem, ...]]]
    ) -> tuple[T, ...]:
        data = self._get(name)
        if data is None:
            return ()
        made, wrong = read(data, f"{self._name}/{name}")
        self.problems.extend(wrong)
        return made


def _is_info(get: Get) -> bool:
    return get.status == 200 and get.path in ("/server_info", "/get_server_info")


def flatten(value: object, prefix: str = "") -> dict[str, float]:
    """Return the numbers of a JSON value under dotted names; list items are summed.

    But for times and shares, `timestamp` and `token_usage`: of those the largest counts.
    """
    if isinstance(value, bool):
        return {}
    if isinstance(value, (int, float)):
        return {prefix: float(value)}
    flat: dict[str, float] = {}
    if isinstance(value, dict):
        for key, item in value.items():
            flat.update(flatten(item, f"{prefix}.{key}" if prefix else str(key)))
    elif isinstance(value, list):
        for item in value:
            for key, number in flatten(item, prefix).items():
                is_level = key.endswith(("timestamp", "usage"))
                flat[key] = max(flat.get(key, number), number) if is_level else flat.get(key, 0.0) + number
    return flat
