"""What a failpoint is made of: the parts it may reach into, and what it replaces while it is on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.config import Role
from engine.observe.threads import Supervisor
from engine.observe.watchdog import StuckClock
from engine.scheduler.book import Book
from engine.scheduler.loop import Loop
from engine.scheduler.planner import Planner
from engine.scheduler.rank_links import OtherRanks
from engine.scheduler.roles import RoleBehaviour


class InjectedFault(Exception):
    """Ends a thread in place of the bug it stands for."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What failpoints may reach into."""

    loop: Loop
    book: Book
    planner: Planner
    role: RoleBehaviour
    supervisor: Supervisor
    stuck_clock: StuckClock
    others: OtherRanks

    @property
    def control(self) -> Any:
        """The control thread's object, `PrefillControl` or `DecodeControl`."""
        return self.role.transfer._control  # type: ignore[union-attr]

    @property
    def worker(self) -> Any:
        """The NIXL thread's object, `SourceWorker` or `ReadWorker`."""
        return self.role.transfer._worker  # type: ignore[union-attr]


class Patches:
    """What one failpoint has replaced, to be put back."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Shadow a method of one object."""
        setattr(owner, name, value)
        self._undo.append(lambda: owner.__dict__.pop(name, None))

    def exchange(self, owner: Any, name: str, value: Any) -> None:
        """Replace what one object was given at its making."""
        original = getattr(owner, name)
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, original))

    def replace_item(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Replace one entry of a table."""
        original = table[key]
        table[key] = value
        self._undo.append(lambda: table.__setitem__(key, original))

    def forsake(self, supervisor: Supervisor, thread: str) -> None:
        """Leave a thread dead when it dies."""
        supervisor.forsaken.add(thread)
        self._undo.append(lambda: supervisor.forsaken.discard(thread))

    def finally_do(self, act: Callable[[], None]) -> None:
        """Also do this when the failpoint is switched off."""
        self._undo.append(act)

    def undo(self) -> None:
        """Put everything back. What a fault has broken meanwhile (a dead thread, a leaked page) stays broken."""
        while self._undo:
            self._undo.pop()()


@dataclass(frozen=True, slots=True)
class Failpoint:
    """One row of the catalogue."""

    name: str
    roles: tuple[Role, ...]
    fault: str
    switches_off: str
    arm: Callable[[Parts, Patches], None]
    least_ranks: int = 1
    """An instance with fewer does not have it."""
    leaves_dead_ranks: bool = False
    """While it is on, the API process goes on when a rank dies."""
