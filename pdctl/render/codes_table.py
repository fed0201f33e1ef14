"""`pdctl codes`."""

from __future__ import annotations

import msgspec

from pdctl.diagnose.catalogue import CATALOGUE, Code


def as_json(codes: tuple[Code, ...] = CATALOGUE) -> str:
    """Return `{code, name, label, level, action, runbook, drill}` for every code."""
    rows = [
        {
            "code": item.code,
            "name": item.name,
            "label": item.label,
            "level": str(item.level),
            "action": str(item.action),
            "runbook": item.runbook,
            "drill": item.drill,
        }
        for item in codes
    ]
    return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode()


def as_table(codes: tuple[Code, ...] = CATALOGUE) -> str:
    """Return one line a code."""
    rows = [
        ("CODE", "LEVEL", "ACTION", "WHAT"),
        *((item.code, str(item.level), str(item.action), item.title) for item in codes),
    ]
    return "\n".join(f"{code:<7} {level:<8} {action:<17} {title}" for code, level, action, title in rows)
