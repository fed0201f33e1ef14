"""PD0311: prefill refuses a healthy decode for an old failure (Mooncake)."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnose.analyzer import Analyzer, proves, requires
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.bursts import room_failures
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.transfer_sides import EXPLAINS, either_dead, transport
from pdctl.diagnose.events import Occurrence
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event


def _mooncake(case: Case, view: InstanceView) -> Answer:
    if view.transfer is None:
        return unknown("the transfer backend is not known")
    if view.transfer.startswith("mooncake"):
        return yes("Mooncake keeps a list of failed sessions", Kind.TOPOLOGY)
    return no(f"{view.transfer} keeps no list of failed sessions", Kind.TOPOLOGY)


def _open_sessions(view: InstanceView) -> Iterable[Occurrence]:
    """Yield session failures that no recovery followed."""
    for item in view.events(Event.SESSION_FAILED):
        later = (one for one in view.events(Event.SESSION_RECOVERED) if one.group("session") == item.group("session"))
        if not any(one.at and item.at and one.at >= item.at for one in later):
            yield item


def _refused_since(case: Case, view: InstanceView) -> Answer:
    failed = next(iter(_open_sessions(view)), None)
    named = room_failures(view, "is not alive") or tuple(
        item for peer in case.peers(view) for item in room_failures(peer, "is not alive")
    )
    if len(named) >= LIMITS.burst_events:
        return yes(
            f"{len(named)} rooms refused: {named[-1].group('reason')[:90]}",
            Kind.LOG,
            named[-1].place,
            len(named),
        )
    if failed is None:
        return unknown("no session failure without recovery")
    for peer in case.peers(view):
        after = [
            item
            for item in room_failures(peer, "might be dead", "not alive")
            if item.at and failed.at and item.at > failed.at
        ]
        tried = [item for item in transport(view) if item.at and failed.at and item.at > failed.at]
        if len(after) >= LIMITS.burst_events and not tried:
            return yes(
                f"{failed.text[:60]} and no attempt since; {len(after)} rooms of {peer.name} failed at once",
                Kind.LOG,
                failed.place,
                len(after),
            )
    return unknown("nothing failed after the session did")


ANALYZER = Analyzer(
    code="PD0311",
    roles=("prefill",),
    inputs=(Kind.METRICS, Kind.LOG, Kind.TOPOLOGY, Kind.SOURCE, Kind.HTTP, Kind.PROCESS),
    explains=EXPLAINS,
    checks=(
        requires("the backend keeps such a list", _mooncake),
        requires("both sides live", either_dead),
        proves("refused since one failure", _refused_since),
    ),
)
