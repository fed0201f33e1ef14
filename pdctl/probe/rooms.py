"""Follow a request through the engines by their own records: `/rooms` (live) and `/rooms/recent` (60 s)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from pdctl.collect.http import InstanceClient
from pdctl.deployment.model import Instance
from pdctl.probe.report import Stage, StageTime

PREFILL_STAGES = {
    "received": Stage.PREFILL_QUEUED,
    "paired": Stage.PAIRED,
    "computed": Stage.PREFILL_COMPUTED,
}
DECODE_STAGES = {"landed": Stage.KV_LANDED, "first_token": Stage.FIRST_TOKEN, "last_token": Stage.LAST_TOKEN}
UNIFIED_STAGES = {"received": Stage.PREFILL_QUEUED, "computed": Stage.PREFILL_COMPUTED} | {
    name: stage for name, stage in DECODE_STAGES.items() if stage is not Stage.KV_LANDED
}
STAGES_OF_ROLE = {"prefill": PREFILL_STAGES, "decode": DECODE_STAGES, "unified": UNIFIED_STAGES}


class RoomRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One leg as an engine describes it; the fields a probe needs of the engine's own record."""

    request_id: str
    rid: str = ""
    role: str
    state: str
    reason: str | None = None
    room: int | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    kv_bytes: int = 0
    transfer_s: float = 0.0
    at: dict[str, float] = {}


class RoomList(msgspec.Struct, frozen=True, kw_only=True):
    """What `/rooms` and `/rooms/recent` answer; `now` is the engine's clock."""

    now: float
    rooms: list[RoomRecord]


class SeenLeg(msgspec.Struct, frozen=True, kw_only=True):
    """A record with the instance that told it, its stamps moved onto our clock."""

    instance: str
    record: RoomRecord
    is_live: bool
    age_s: float
    """Since it was received."""


class RoomReader:
    """Reads the room lists of some engines. `wall` is our clock, in Unix seconds."""

    def __init__(self, clients: Sequence[tuple[Instance, InstanceClient]], wall: Callable[[], float]) -> None:
        self._clients = clients
        self._wall = wall
        self.unread: dict[str, str] = {}
        """Instance -> why its rooms could not be read the last time."""

    def find(self, request_id: str) -> tuple[SeenLeg, ...]:
        """Return every leg of a request, ended or live.

        Live ones are asked for first: a leg that ends in between is then seen twice, and never not at all.
        """
        self.unread = {}
        legs: dict[tuple[str, str], SeenLeg] = {}
        for instance, client in self._clients:
            for path, is_live in (("/rooms", True), ("/rooms/recent", False)):
                # An instance that did not answer once is not waited for again.
                if instance.name not in self.unread:
                    found = self._read(instance, client, path, request_id, is_live)
                    legs |= {(leg.instance, leg.record.rid): leg for leg in found}
        return tuple(legs.values())

    def _read(
        self, instance: Instance, client: InstanceClient, path: str, request_id: str, is_live: bool
    ) -> list[SeenLeg]:
        asked_at = self._wall()
        answer = client.get(path)
        answered_at = self._wall()
        if not answer.ok:
            self.unread[instance.name] = answer.describe()
            return []
        try:
            listing = msgspec.json.decode(answer.body, type=RoomList)
        except msgspec.DecodeError as error:
            self.unread[instance.name] = f"{answer.describe()}, but not a room list: {error}"
            return []
        offset_s = clock_offset(listing.now, asked_at, answered_at)
        return [
            SeenLeg(
                instance=instance.name,
                record=_on_our_clock(record, offset_s),
                is_live=is_live,
                age_s=listing.now - record.at.get("received", listing.now),
            )
            for record in listing.rooms
            if record.request_id == request_id
        ]


def clock_offset(theirs: float, asked_at: float, answered_at: float) -> float:
    """Return how far their clock is ahead of ours, in seconds; 0 where it lies within the exchange itself."""
    if asked_at <= theirs <= answered_at:
        return 0.0
    return theirs - (asked_at + answered_at) / 2


def stage_times(legs: Sequence[SeenLeg], sent_at: float, *, by_router: bool) -> tuple[StageTime, ...]:
    """Return the stages that the legs have reached, by time.

    "Router accepted" is the first leg's arrival: a router passes on at once what it has accepted.
    """
    order = list(Stage)
    found: dict[Stage, float] = {}
    for leg in legs:
        names = STAGES_OF_ROLE.get(leg.record.role, {})
        for name, at in leg.record.at.items():
            if name in names:
                stage = names[name]
                found[stage] = min(at, found.get(stage, at))
    arrivals = [leg.record.at["received"] for leg in legs if "received" in leg.record.at]
    if by_router and arrivals:
        found[Stage.ROUTER_ACCEPTED] = min(arrivals)
    return timeline(sorted(found.items(), key=lambda item: (item[1], order.index(item[0]))), sent_at)


def timeline(stamps: Sequence[tuple[Stage, float]], sent_at: float) -> tuple[StageTime, ...]:
    """Return stages with milliseconds since the start and since the stage before; `stamps` are in order.

    Nothing happens before it is sent: a stamp that says so is off by the error of its clock (another host's, known
    to half a round trip; or one that was set in between), and counts as the moment of sending.
    """
    times = []
    before = sent_at
    for stage, stamp in stamps:
        at = max(stamp, sent_at)
        times.append(
            StageTime(stage=stage, at_ms=round((at - sent_at) * 1000, 3), took_ms=round((at - before) * 1000, 3))
        )
        before = at
    return tuple(times)


def describe_live(legs: Sequence[SeenLeg]) -> tuple[str, ...]:
    """Return one line for each leg that is not over, or failed."""
    lines = []
    for leg in legs:
        record = leg.record
        if leg.is_live:
            lines.append(f"{leg.instance}: room {record.state} for {leg.age_s:.1f} s, not ended")
        elif record.reason or record.state == "failed":
            lines.append(f"{leg.instance}: room {record.state} ({record.reason or 'no reason given'})")
    return tuple(lines)


def _on_our_clock(record: RoomRecord, offset_s: float) -> RoomRecord:
    return msgspec.structs.replace(record, at={name: at - offset_s for name, at in record.at.items()})
