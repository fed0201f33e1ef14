"""The TOML files of an incident directory -> records; a wrong value is a problem, the rest is kept."""

from __future__ import annotations

import re
import signal as signals
import tomllib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TypeVar

import msgspec

from pdctl.evidence.records import Capture, Get, Gpu, Place, Probe, Problem, Process, Socket, SourceFacts

Table = Mapping[str, object]
Record = TypeVar("Record", bound=msgspec.Struct)


def read_toml(data: bytes, file: str) -> tuple[dict[str, object], tuple[Problem, ...]]:
    """Return the document, or an empty one and the problem with its line."""
    try:
        return tomllib.loads(data.decode("utf-8")), ()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return {}, (Problem(Place(file, line), "is not UTF-8"),)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        found = re.search(r"at line (\d+)", str(error))
        return {}, (Problem(Place(file, int(found[1]) if found else None), f"is not valid TOML: {error}"),)


def tables(document: Table, key: str) -> tuple[Table, ...]:
    """Return the tables of `[[key]]`; anything else there counts as absent."""
    value = document.get(key)
    return tuple(item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def records(items: Iterable[Table], kind: type[Record], file: str) -> tuple[tuple[Record, ...], tuple[Problem, ...]]:
    """Return one record a table. A field of the wrong type is left unknown and reported."""
    made: list[Record] = []
    problems: list[Problem] = []
    for index, item in enumerate(items):
        record, wrong = record_of(item, kind, file, f"#{index + 1}")
        made.append(record)
        problems.extend(wrong)
    return tuple(made), tuple(problems)


def record_of(item: Table, kind: type[Record], file: str, where: str) -> tuple[Record, tuple[Problem, ...]]:
    """Return a record of the fields that fit."""
    kept: dict[str, object] = {}
    problems: list[Problem] = []
    for field in _fields(kind):
        if field.name not in item:
            continue
        value = _aware(item[field.name])
        try:
            kept[field.name] = msgspec.convert(value, field.type, strict=False)
        except msgspec.ValidationError:
            problems.append(
                Problem(Place(file, pointer=f"{where}.{field.name}"), f"{value!r} is not what {field.name} is")
            )
    required = [field.name for field in _fields(kind) if field.required and field.name not in kept]
    kept.update(dict.fromkeys(required, ""))
    return kind(**kept), tuple(problems)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return a record's fields; worked out once: it costs as much as judging a folder's small files."""
    return msgspec.structs.fields(kind)


def _aware(value: object) -> object:
    """Return the value; a local time is UTC, as the format says."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


def processes(document: Table, file: str) -> tuple[tuple[Process, ...], tuple[Problem, ...]]:
    """Return `[[process]]`; a signal may stand as a number or as a name."""
    return records((_with_signal_number(item) for item in tables(document, "process")), Process, file)


def _with_signal_number(item: Table) -> Table:
    name = item.get("signal")
    if not isinstance(name, str):
        return item
    try:
        return {**item, "signal": int(signals.Signals[name.upper()])}
    except KeyError:
        return {**item, "signal": int(name)} if name.isdigit() else item


def sockets(document: Table, file: str) -> tuple[tuple[Socket, ...], tuple[Problem, ...]]:
    """Return `[[socket]]`."""
    return records(tables(document, "socket"), Socket, file)


def gets(document: Table, file: str) -> tuple[tuple[Get, ...], tuple[Problem, ...]]:
    """Return `[[get]]`."""
    return records(tables(document, "get"), Get, file)


def gpus(document: Table, file: str) -> tuple[tuple[Gpu, ...], tuple[Problem, ...]]:
    """Return `[[gpu]]`."""
    return records(tables(document, "gpu"), Gpu, file)


def source(document: Table, file: str) -> tuple[SourceFacts, tuple[Problem, ...]]:
    """Return the facts about the running code; environment values may stand as numbers."""
    env = document.get("env")
    texts = {str(key): str(value) for key, value in env.items()} if isinstance(env, dict) else {}
    return record_of({**document, "env": texts}, SourceFacts, file, "source")


def probes(document: Table, file: str) -> tuple[tuple[Probe, ...], tuple[Problem, ...]]:
    """Return `[[probe]]`; the boolean `output_ok` of hand-made folders becomes `output`."""
    return records((_with_output(item) for item in tables(document, "probe")), Probe, file)


def _with_output(item: Table) -> Table:
    is_right = item.get("output_ok")
    if "output" in item or not isinstance(is_right, bool):
        return item
    # `false` beside a failed request only says that there was no good output.
    if is_right:
        return {**item, "output": "close"}
    return {**item, "output": "garbled" if item.get("status") == 200 else "unchecked"}


def capture(document: Table, file: str) -> tuple[Capture, tuple[Problem, ...]]:
    """Return how the files came about."""
    failed: dict[str, str] = {}
    since: object = None
    for item in tables(document, "file"):
        name, status = str(item.get("name", "")), str(item.get("status", "ok"))
        if status != "ok":
            failed[name] = str(item.get("error", status))
        if name.startswith("log") and since is None:
            since = item.get("covers_since")
    made, problems = record_of(document, Capture, file, "capture")
    offset = _offset_min(str(document.get("log_utc_offset", "")))
    covers = _aware(since)
    return msgspec.structs.replace(
        made,
        failed=failed,
        log_offset_min=offset,
        log_covers_since=covers if isinstance(covers, datetime) else None,
    ), problems


def _offset_min(text: str) -> int:
    match = re.fullmatch(r"([+-])(\d\d):?(\d\d)", text)
    if match is None:
        return 0
    minutes = int(match[2]) * 60 + int(match[3])
    return -minutes if match[1] == "-" else minutes
