"""The time line, one moment a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from pdctl.diagnose.case import Case
from pdctl.diagnose.report import Moment
from pdctl.errors import UsageError


def chosen(moments: Iterable[Moment], instances: Sequence[str], case: Case) -> tuple[Moment, ...]:
    """Return the moments of some instances (all without a name), oldest first. Raises UsageError for an unknown one."""
    known = [view.name for view in case.views]
    for name in instances:
        if name not in known:
            raise UsageError(f"there is no instance {name!r}", f"there are {', '.join(known)}")
    kept = (moment for moment in moments if not instances or moment.instance in instances)
    return tuple(sorted(kept, key=lambda moment: (moment.at, moment.instance, moment.what)))


def as_json(moments: Sequence[Moment]) -> str:
    """Return `[{at, instance, what, source}]`."""
    return msgspec.json.format(msgspec.json.encode(moments), indent=2).decode()


def as_lines(moments: Sequence[Moment], captured_at: datetime | None) -> str:
    """Return `TIME  BEFORE  INSTANCE  WHAT`; BEFORE is the time to the capture, a new day has a line of its own."""
    if not moments:
        return "nothing with a time is known"
    width = max(len(moment.instance) for moment in moments)
    lines: list[str] = []
    day = ""
    for moment in moments:
        if f"{moment.at:%Y-%m-%d}" != day:
            day = f"{moment.at:%Y-%m-%d}"
            lines.append(f"{day} (UTC)")
        when = f"{moment.at:%H:%M:%S}  {_before(moment.at, captured_at):>8}"
        lines.append(f"  {when}  {moment.instance:<{width}}  {moment.what}")
    if captured_at is not None:
        lines.append(f"{captured_at:%Y-%m-%d %H:%M:%S}  captured")
    return "\n".join(lines)


def _before(at: datetime, captured_at: datetime | None) -> str:
    """Return how long before the capture, in the unit that fits: `-42s`, `-7m`, `-3.5h`, `-2d`."""
    if captured_at is None:
        return ""
    seconds = (captured_at - at).total_seconds()
    sign, size = ("-", seconds) if seconds >= 0 else ("+", -seconds)
    if size < 120:
        return f"{sign}{size:.0f}s"
    if size < 7200:
        return f"{sign}{size / 60:.0f}m"
    return f"{sign}{size / 3600:.1f}h" if size < 172_800 else f"{sign}{size / 86_400:.0f}d"
