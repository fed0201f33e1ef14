"""What happened before the capture: marks of our flight recorder, and series that a Prometheus had kept."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from pdctl.evidence.flight_format import Flight, NotAFlightFile, read_flight
from pdctl.evidence.records import Place, Problem


class Mark(msgspec.Struct, frozen=True):
    """One thing that a flight recorder wrote down and that belongs into a time line."""

    at: datetime
    kind: str
    """start | step_open | step_end | room_failed | note"""
    text: str
    place: Place


class Trace(msgspec.Struct, frozen=True):
    """One kept series, summed over its labels; points oldest first."""

    name: str
    """As the engine spells it where that is known; a Prometheus may have `_` for `:`."""
    points: tuple[tuple[datetime, float], ...]
    file: str


def marks(data: bytes, file: str) -> tuple[tuple[Mark, ...], tuple[Problem, ...]]:
    """Return the marks of a recorder's file: its start, where its steps end, failed rooms, notes."""
    try:
        flight = read_flight(data)
    except NotAFlightFile as error:
        return (), (Problem(Place(file), str(error)),)
    start = Mark(_time(flight.started_at), "start", f"recorder of pid {flight.pid} began", Place(file))
    return tuple(sorted((start, *_steps(flight, file), *_told(flight, file)), key=lambda mark: mark.at)), ()


def _steps(flight: Flight, file: str) -> list[Mark]:
    """Return the end of the last step, and the step that began after it and has not ended."""
    steps = [record for record in flight.records if record.kind in ("step_begin", "step_end")]
    if not steps:
        return []
    last, ends = steps[-1], [record for record in steps if record.kind == "step_end"]
    found = [Mark(_time(ends[-1].at), "step_end", f"step {ends[-1].subject} ended", Place(file))] if ends else []
    if last.kind == "step_begin":
        text = f"step {last.subject} of {last.amount} sequences began, and had not ended"
        found.append(Mark(_time(last.at), "step_open", text, Place(file)))
    return found


def _told(flight: Flight, file: str) -> list[Mark]:
    found: list[Mark] = []
    for record in flight.records:
        place = Place(file, pointer=f"record {record.number}")
        if record.kind == "note":
            found.append(Mark(_time(record.at), "note", record.text, place))
        elif record.kind == "room":
            side, way, event, *_ = (*record.text.split(), "", "", "")
            if way.partition(">")[2].startswith("failed") and not way.startswith("failed"):
                found.append(Mark(_time(record.at), "room_failed", f"{side} room failed: {event}", place))
    return found


class _Series(msgspec.Struct):
    metric: dict[str, str] = {}
    values: list[tuple[float, str]] = []


class _History(msgspec.Struct):
    series: list[_Series] = []


def traces(data: bytes, file: str) -> tuple[tuple[Trace, ...], tuple[Problem, ...]]:
    """Return the series of a history file, one a name; points that are no numbers are left out."""
    try:
        history = msgspec.json.decode(data, type=_History)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return (), (Problem(Place(file), f"is no history: {error}"),)
    sums: dict[str, dict[float, float]] = {}
    for series in history.series:
        points = sums.setdefault(series.metric.get("__name__", ""), {})
        for at, text in series.values:
            if (number := _number(text)) is not None:
                points[at] = points.get(at, 0.0) + number
    made = (
        Trace(name, tuple((_time(at), points[at]) for at in sorted(points)), file)
        for name, points in sorted(sums.items())
        if name and points
    )
    return tuple(made), ()


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number == number else None


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
