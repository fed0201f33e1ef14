"""Answers of the observer thread; the HTTP routes send them as JSON as they are."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Stage(StrEnum):
    """Points in a request's life that get a wall-clock stamp. The order is the order of life."""

    RECEIVED = "received"
    """The HTTP leg arrived."""
    PAIRED = "paired"
    """Both legs and the offer have met."""
    COMPUTING = "computing"
    """Prefill: the first chunk entered a step."""
    COMPUTED = "computed"
    """Prefill: the last chunk and the first token are done."""
    READING = "reading"
    """Decode: pages taken, first read posted."""
    LANDED = "landed"
    """Decode: COMMITTED received, every checksum right. Prefill: COMMITTED sent."""
    FIRST_TOKEN = "first_token"
    LAST_TOKEN = "last_token"


class RoomRecord(msgspec.Struct, kw_only=True):
    """One request leg; live ones in `/rooms`, ended ones for 60 s in `/rooms/recent`.

    Written by the loop and by the transfer threads, each field by one of them only.
    """

    request_id: str
    rid: str
    room: int | None
    role: str
    state: str
    """Of the room where there is one (announced, paired, reading, landed, closed, failed), else the phase."""
    reason: str | None = None
    """Why it failed or was aborted."""
    peer: str | None = None
    peer_incarnation: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    kv_bytes: int = 0
    """Bytes READ (decode) or offered for reading (prefill) so far."""
    transfer_s: float = 0.0
    """Decode: post to DONE, summed over the chunks."""
    at: dict[str, float] = {}
    """Stage -> Unix time."""


class RoomList(msgspec.Struct, kw_only=True):
    """`/rooms` and `/rooms/recent`."""

    instance: str
    incarnation: str
    now: float
    """Unix time of the answer: ages are now - at."""
    rooms: list[RoomRecord]


class Ledger(msgspec.Struct, kw_only=True):
    """Pages by owner; the sum of the owners is `total`, or there is a leak (invariant 7)."""

    total: int
    free: int
    cached: int
    running: int
    held_for_peer: int
    reading: int
    fencing: int
    pinned: int
    balanced: bool


class LoadReport(msgspec.Struct, kw_only=True):
    """`/v1/loads`: queues in numbers and in age."""

    running: int
    waiting: int
    queues: dict[str, int]
    oldest_age_s: dict[str, float]
    kv_tokens_used: int
    kv_tokens_total: int


class HealthReport(msgspec.Struct, kw_only=True):
    """Can this instance do its part? `ok` decides 200 or 503; `problems` says which part failed."""

    ok: bool
    problems: list[str]
    loop_age_s: float
    """Seconds since the loop last moved."""
    threads: dict[str, bool]
    refused_peers: dict[str, str]
    """Peer -> the contract field and both values. Not counted against `ok`."""


class PeerTransfer(msgspec.Struct, kw_only=True):
    """One row of `/health/transfer`: what the last canary READ between this instance and a peer found."""

    peer: str
    incarnation: str
    state: str
    """ok | failing | stale | waiting (for the first) | refused (by the contract) | unreachable"""
    took_ms: float
    """From post to DONE."""
    age_s: float | None
    """Seconds since it ended; None before the first."""
    detail: str


class FailpointState(msgspec.Struct, kw_only=True):
    """One row of `/failpoints`."""

    name: str
    fault: str
    """What happens when it is on."""
    switches_off: str
    """The defence that would heal it, off for as long."""
    on: bool
    leaves_dead_ranks: bool
    """While it is on, the instance does not end when a rank dies."""


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """One metric sample; names and types stand in `engine.observe.metrics`."""

    name: str
    value: float
    labels: dict[str, str] = {}
