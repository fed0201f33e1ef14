"""What the actions of the tables send, and what events frames are: the step between `rooms` and `frames`, as data.

Both control threads act by these tables, and so does the exploration of all states
(`tests/engine/transfer/exploration.py`): what it proves is about what runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from engine.transfer.protocol.frames import Kind
from engine.transfer.protocol.rooms import Action, DecodeEvent, PrefillEvent


class Sending(NamedTuple):
    """A frame that an action sends."""

    kind: Kind
    is_repeated: bool
    """Until answered; the others are sent once."""
    replaces: bool = False
    """Whatever else was still to be repeated about the room is forgotten."""


PREFILL_SENDS: Mapping[Action, Sending] = {
    Action.SEND_READY: Sending(Kind.READY, is_repeated=True),
    Action.SEND_COMMITTED: Sending(Kind.COMMITTED, is_repeated=True, replaces=True),
    Action.SEND_GONE: Sending(Kind.GONE, is_repeated=False),
    Action.PUSH_END: Sending(Kind.FAILED, is_repeated=True, replaces=True),
}
DECODE_SENDS: Mapping[Action, Sending] = {
    Action.SEND_OFFER: Sending(Kind.OFFER, is_repeated=True),
    Action.SEND_COMMIT: Sending(Kind.COMMIT, is_repeated=True),
    Action.PUSH_END: Sending(Kind.ABORT, is_repeated=True, replaces=True),
}
"""A REFUSED is a FAILED or an ABORT by another name: the peer may do better elsewhere."""

PREFILL_HEARS: Mapping[Kind, PrefillEvent] = {
    Kind.OFFER: PrefillEvent.OFFER,
    Kind.COMMIT: PrefillEvent.COMMIT,
    Kind.ABORT: PrefillEvent.ABORT,
    Kind.REFUSED: PrefillEvent.ABORT,
}
PREFILL_HEARS_ACK_OF = frozenset({Kind.COMMITTED, Kind.FAILED, Kind.REFUSED})
"""The ACKs that are an event; the others only end the repeating."""

DECODE_HEARS: Mapping[Kind, DecodeEvent] = {
    Kind.READY: DecodeEvent.READY,
    Kind.COMMITTED: DecodeEvent.COMMITTED,
    Kind.GONE: DecodeEvent.GONE,
    Kind.FAILED: DecodeEvent.PEER_FAILED,
    Kind.REFUSED: DecodeEvent.PEER_FAILED,
}
DECODE_HEARS_ACK_OF: Mapping[str, DecodeEvent] = {Kind.OFFER: DecodeEvent.PAIR_ACK}
DECODE_HEARS_NACK_OF = frozenset({Kind.OFFER, Kind.COMMIT})
"""The NACKs that end a room: without pairing, or without a decision, it cannot go on."""

FORGETS = frozenset({Action.TELL_FAILED, Action.TELL_LANDED})
"""After these there is nothing left to repeat about the room but what follows in the same entry."""
