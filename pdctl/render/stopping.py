"""What `pdctl down` did."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pdctl.deployment.shutdown import Stopped


def as_json(stopped: Iterable[Stopped]) -> str:
    """Return a list with one object an instance."""
    return msgspec.json.format(msgspec.json.encode(list(stopped)), indent=2).decode()


def as_lines(stopped: Iterable[Stopped]) -> str:
    """Return one line an instance, in the order of stopping."""
    return "\n".join(f"{one.instance}: {_outcome(one)}" for one in stopped)


def _outcome(one: Stopped) -> str:
    if not one.was_running:
        return f"was not running ({one.was})"
    return "killed, it did not stop in time" if one.was_killed else "stopped"
