"""Rooms as tables: (state, event) -> (next state, actions), for both sides. No I/O, no clock, no branch.

`PREFILL[state][event]` and `DECODE[state][event]` have an entry for every pair, so no frame, late, repeated
or foreign, finds a room without an answer; that is what "cannot wedge" rests on. Whoever runs a table carries
out the actions in order and drops rooms that became ABSENT. An `Entry` without actions says: known, nothing
to do.

Prefill                                              Decode
  ABSENT --LEG--> ANNOUNCED --OFFER--> PAIRED          ABSENT --OPEN--> OPENED --LINK_UP--> OFFERED
  ABSENT --OFFER--> PARKED --LEG--> PAIRED             OFFERED --PAIR_ACK--> PAIRED
  PAIRED --CHUNK--> READING --LAST_CHUNK--> COMPUTED   OFFERED|PAIRED --READY--> WANTING --GRANT--> READING
  COMPUTED --COMMIT--> LANDED --ACK--> ABSENT          READING --ALL_READ--> COMMITTING
  any of these --end--> FAILED --ACK--> ABSENT         COMMITTING --COMMITTED--> LANDED --EXPIRED--> ABSENT
  no leg yet --end--> TOMBSTONE --EXPIRED--> ABSENT    pages granted --end--> FENCING --FENCED--> ABSENT

Who decides: prefill alone answers COMMIT, with COMMITTED or GONE, in the thread that also takes its own
failures, so it says exactly one of them. Decode, once it asked (COMMITTING), does not end the room by itself
any more, unless the peer is gone: a client's abort waits for the answer and, after COMMITTED, ends the landed
sequence instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple


class PrefillState(StrEnum):
    ABSENT = "absent"
    PARKED = "parked"
    """An OFFER waits for its HTTP leg."""
    TOMBSTONE = "tombstone"
    """Ended before both halves met; the late half is refused."""
    ANNOUNCED = "announced"
    """The HTTP leg waits for its OFFER."""
    PAIRED = "paired"
    READING = "reading"
    """Some chunks are ready."""
    COMPUTED = "computed"
    """All chunks are ready; waiting for COMMIT."""
    LANDED = "landed"
    """COMMITTED was said; kept until decode has heard it."""
    FAILED = "failed"
    """FAILED is being pushed; kept until decode has heard it."""


class PrefillEvent(StrEnum):
    LEG = "leg"
    """The HTTP leg came; where an offer waits, they fit."""
    LEG_DIFFERS = "leg_differs"
    """The HTTP leg came; the waiting offer is for another prompt."""
    OFFER = "offer"
    OFFER_DIFFERS = "offer_differs"
    OFFER_UNWANTED = "offer_unwanted"
    """From a peer refused by the contract, or while draining."""
    CHUNK = "chunk"
    LAST_CHUNK = "last_chunk"
    COMMIT = "commit"
    ABORT = "abort"
    """ABORT or REFUSED from the peer."""
    ACK = "ack"
    """Of COMMITTED or FAILED. Of a FAILED that was told before the halves met, it may come at any time after."""
    NACK = "nack"
    """The peer does not know the room."""
    FAIL = "fail"
    """This side ends it: abort, deadline, stuck or silent peer."""
    PEER_GONE = "peer_gone"
    EXPIRED = "expired"
    """The pairing deadline passed."""


class DecodeState(StrEnum):
    ABSENT = "absent"
    OPENED = "opened"
    """Waiting for the link to the prefill."""
    OFFERED = "offered"
    PAIRED = "paired"
    WANTING = "wanting"
    """A chunk is ready; waiting for the loop to grant pages."""
    READING = "reading"
    COMMITTING = "committing"
    LANDED = "landed"
    """Kept a while, so that a late grant is not mistaken for one that needs a fence."""
    FENCING = "fencing"


class DecodeEvent(StrEnum):
    OPEN = "open"
    LINK_UP = "link_up"
    PAIR_ACK = "pair_ack"
    READY = "ready"
    READY_FINISHES = "ready_finishes"
    """The last READY; its first token ends the request, so nothing (more) is read."""
    GRANT = "grant"
    ALL_READ = "all_read"
    """Every chunk was read and verified."""
    READ_FAILED = "read_failed"
    COMMITTED = "committed"
    GONE = "gone"
    PEER_FAILED = "peer_failed"
    """FAILED or REFUSED from the peer."""
    NACK = "nack"
    FAIL = "fail"
    """This side ends it: abort, deadline, stuck peer, no link."""
    PEER_GONE = "peer_gone"
    EXPIRED = "expired"
    """The pairing deadline passed; of a landed room: its time to be remembered."""
    FENCED = "fenced"


class Action(StrEnum):
    TELL_PAIRED = "tell_paired"
    TELL_COMMITTED = "tell_committed"
    TELL_LANDED = "tell_landed"
    TELL_FAILED = "tell_failed"
    TELL_FENCED = "tell_fenced"
    WANT_PAGES = "want_pages"
    REFUSE_LEG = "refuse_leg"
    """Fail the leg that just came; the room itself stays as it is."""
    ACK = "ack"
    NACK = "nack"
    SEND_OFFER = "send_offer"
    SEND_READY = "send_ready"
    SEND_COMMIT = "send_commit"
    SEND_COMMITTED = "send_committed"
    SEND_GONE = "send_gone"
    PUSH_END = "push_end"
    """Send FAILED, ABORT or REFUSED until acknowledged."""
    POST_READS = "post_reads"
    FENCE = "fence"
    """Make sure that no read can touch the room's pages; FENCED follows."""


State = PrefillState | DecodeState


class Entry(NamedTuple):
    """What an event does to a room."""

    state: State
    actions: tuple[Action, ...] = ()


Row = Mapping[StrEnum, Entry]
P, PE, D, DE, A = PrefillState, PrefillEvent, DecodeState, DecodeEvent, Action


def _row(state: State, events: Iterable[StrEnum], **entries: Entry) -> Row:
    """Fill a row: events that are not named leave the room as it is."""
    named = {event: Entry(state) for event in events}
    for name, entry in entries.items():
        event = next(event for event in named if event.name == name)
        named[event] = entry
    return named


def _prefill(state: PrefillState, **entries: Entry) -> Row:
    # A comparison needs both halves: where one is missing, "differs" means no more than "came".
    entries.setdefault("LEG_DIFFERS", entries["LEG"])
    if "OFFER" in entries:
        entries.setdefault("OFFER_DIFFERS", entries["OFFER"])
        entries.setdefault("OFFER_UNWANTED", entries["OFFER"])
    return _row(state, PE, **entries)


_LEG_FAILS = (A.TELL_FAILED, A.PUSH_END)


def _held(state: PrefillState, **entries: Entry) -> Row:
    """Row of a paired prefill room: how it can end is the same in each such state."""
    return _prefill(
        state,
        LEG=Entry(state, (A.REFUSE_LEG,)),
        OFFER=Entry(state, (A.ACK,)),
        ABORT=Entry(P.ABSENT, (A.TELL_FAILED, A.ACK)),
        # Decode has heard of an end that was told before the halves met, and is gone.
        ACK=Entry(P.ABSENT, (A.TELL_FAILED,)),
        NACK=Entry(P.ABSENT, (A.TELL_FAILED,)),
        FAIL=Entry(P.FAILED, _LEG_FAILS),
        PEER_GONE=Entry(P.ABSENT, (A.TELL_FAILED,)),
        **({"COMMIT": Entry(state, (A.NACK,))} | entries),
    )


_CHUNKS = {
    "CHUNK": Entry(P.READING, (A.SEND_READY,)),
    "LAST_CHUNK": Entry(P.COMPUTED, (A.SEND_READY,)),
}

PREFILL: Mapping[PrefillState, Row] = {
    P.ABSENT: _prefill(
        P.ABSENT,
        LEG=Entry(P.ANNOUNCED),
        OFFER=Entry(P.PARKED),
        OFFER_UNWANTED=Entry(P.TOMBSTONE, (A.PUSH_END,)),
        COMMIT=Entry(P.ABSENT, (A.NACK,)),
        ABORT=Entry(P.TOMBSTONE, (A.ACK,)),
    ),
    P.PARKED: _prefill(
        P.PARKED,
        LEG=Entry(P.PAIRED, (A.TELL_PAIRED, A.ACK)),
        LEG_DIFFERS=Entry(P.FAILED, _LEG_FAILS),
        OFFER_UNWANTED=Entry(P.TOMBSTONE, (A.PUSH_END,)),
        COMMIT=Entry(P.PARKED, (A.NACK,)),
        ABORT=Entry(P.TOMBSTONE, (A.ACK,)),
        FAIL=Entry(P.TOMBSTONE, (A.PUSH_END,)),
        PEER_GONE=Entry(P.TOMBSTONE),
        EXPIRED=Entry(P.TOMBSTONE, (A.PUSH_END,)),
    ),
    P.TOMBSTONE: _prefill(
        P.TOMBSTONE,
        LEG=Entry(P.TOMBSTONE, (A.REFUSE_LEG,)),
        OFFER=Entry(P.TOMBSTONE, (A.PUSH_END,)),
        COMMIT=Entry(P.TOMBSTONE, (A.NACK,)),
        ABORT=Entry(P.TOMBSTONE, (A.ACK,)),
        EXPIRED=Entry(P.ABSENT),
    ),
    P.ANNOUNCED: _prefill(
        P.ANNOUNCED,
        LEG=Entry(P.ANNOUNCED, (A.REFUSE_LEG,)),
        OFFER=Entry(P.PAIRED, (A.TELL_PAIRED, A.ACK)),
        OFFER_DIFFERS=Entry(P.FAILED, _LEG_FAILS),
        OFFER_UNWANTED=Entry(P.FAILED, _LEG_FAILS),
        COMMIT=Entry(P.ANNOUNCED, (A.NACK,)),
        ABORT=Entry(P.ABSENT, (A.TELL_FAILED, A.ACK)),
        FAIL=Entry(P.TOMBSTONE, (A.TELL_FAILED,)),
        EXPIRED=Entry(P.TOMBSTONE, (A.TELL_FAILED,)),
    ),
    P.PAIRED: _held(P.PAIRED, **_CHUNKS),
    P.READING: _held(P.READING, **_CHUNKS),
    P.COMPUTED: _held(P.COMPUTED, COMMIT=Entry(P.LANDED, (A.TELL_COMMITTED, A.SEND_COMMITTED))),
    P.LANDED: _prefill(
        P.LANDED,
        LEG=Entry(P.LANDED, (A.REFUSE_LEG,)),
        COMMIT=Entry(P.LANDED, (A.SEND_COMMITTED,)),
        ABORT=Entry(P.ABSENT, (A.ACK,)),
        ACK=Entry(P.ABSENT),
        NACK=Entry(P.ABSENT),
        PEER_GONE=Entry(P.ABSENT),
    ),
    P.FAILED: _prefill(
        P.FAILED,
        LEG=Entry(P.FAILED, (A.REFUSE_LEG,)),
        COMMIT=Entry(P.FAILED, (A.SEND_GONE,)),
        ABORT=Entry(P.ABSENT, (A.ACK,)),
        ACK=Entry(P.ABSENT),
        NACK=Entry(P.ABSENT),
        PEER_GONE=Entry(P.ABSENT),
    ),
}


def _ends(state: DecodeState, failed: DecodeState, fence: tuple[Action, ...]) -> dict[str, Entry]:
    """How an open decode room ends before it asks for COMMITTED."""
    heard = (A.TELL_FAILED, A.ACK, *fence)
    alone = (A.TELL_FAILED, *fence)
    pushed = (A.TELL_FAILED, A.PUSH_END, *fence)
    return {
        "PEER_FAILED": Entry(failed, heard),
        "NACK": Entry(failed, alone),
        "GONE": Entry(failed, alone),
        "PEER_GONE": Entry(failed, alone),
        "FAIL": Entry(failed, pushed),
        "READ_FAILED": Entry(failed, pushed),
        # A COMMITTED that nobody asked for proves nothing: the peer's room is not ours.
        "COMMITTED": Entry(state, (A.NACK,)),
    }


def _ungranted(state: DecodeState, **entries: Entry) -> Row:
    late_grant = {"GRANT": Entry(state)}
    return _row(state, DE, **(_ends(state, D.ABSENT, ()) | late_grant | entries))


_READY = {
    "READY": Entry(D.WANTING, (A.ACK, A.WANT_PAGES)),
    "READY_FINISHES": Entry(D.COMMITTING, (A.ACK, A.SEND_COMMIT)),
}
_PAIRING_ENDS = Entry(D.ABSENT, (A.TELL_FAILED, A.PUSH_END))

DECODE: Mapping[DecodeState, Row] = {
    D.ABSENT: _row(
        D.ABSENT,
        DE,
        OPEN=Entry(D.OPENED),
        READY=Entry(D.ABSENT, (A.NACK,)),
        READY_FINISHES=Entry(D.ABSENT, (A.NACK,)),
        # The loop granted before it saw the end: it waits for this.
        GRANT=Entry(D.ABSENT, (A.TELL_FENCED,)),
        COMMITTED=Entry(D.ABSENT, (A.ACK,)),
        PEER_FAILED=Entry(D.ABSENT, (A.ACK,)),
    ),
    D.OPENED: _ungranted(D.OPENED, LINK_UP=Entry(D.OFFERED, (A.SEND_OFFER,)), EXPIRED=_PAIRING_ENDS),
    D.OFFERED: _ungranted(D.OFFERED, PAIR_ACK=Entry(D.PAIRED), EXPIRED=_PAIRING_ENDS, **_READY),
    D.PAIRED: _ungranted(D.PAIRED, **_READY),
    D.WANTING: _ungranted(
        D.WANTING,
        READY=Entry(D.WANTING, (A.ACK,)),
        READY_FINISHES=_READY["READY_FINISHES"],
        GRANT=Entry(D.READING, (A.POST_READS,)),
    ),
    D.READING: _row(
        D.READING,
        DE,
        **_ends(D.READING, D.FENCING, (A.FENCE,)),
        READY=Entry(D.READING, (A.ACK, A.POST_READS)),
        READY_FINISHES=Entry(D.READING, (A.ACK, A.POST_READS)),
        ALL_READ=Entry(D.COMMITTING, (A.SEND_COMMIT,)),
    ),
    D.COMMITTING: _row(
        D.COMMITTING,
        DE,
        READY=Entry(D.COMMITTING, (A.ACK,)),
        READY_FINISHES=Entry(D.COMMITTING, (A.ACK,)),
        COMMITTED=Entry(D.LANDED, (A.TELL_LANDED, A.ACK)),
        GONE=Entry(D.FENCING, (A.TELL_FAILED, A.FENCE)),
        NACK=Entry(D.FENCING, (A.TELL_FAILED, A.FENCE)),
        PEER_FAILED=Entry(D.FENCING, (A.TELL_FAILED, A.ACK, A.FENCE)),
        PEER_GONE=Entry(D.FENCING, (A.TELL_FAILED, A.FENCE)),
    ),
    D.LANDED: _row(
        D.LANDED,
        DE,
        READY=Entry(D.LANDED, (A.ACK,)),
        READY_FINISHES=Entry(D.LANDED, (A.ACK,)),
        COMMITTED=Entry(D.LANDED, (A.ACK,)),
        PEER_FAILED=Entry(D.LANDED, (A.ACK,)),
        EXPIRED=Entry(D.ABSENT),
    ),
    D.FENCING: _row(
        D.FENCING,
        DE,
        READY=Entry(D.FENCING, (A.ACK,)),
        READY_FINISHES=Entry(D.FENCING, (A.ACK,)),
        COMMITTED=Entry(D.FENCING, (A.ACK,)),
        PEER_FAILED=Entry(D.FENCING, (A.ACK,)),
        GRANT=Entry(D.FENCING),
        FENCED=Entry(D.ABSENT, (A.TELL_FENCED,)),
    ),
}


def prefill_step(state: PrefillState, event: PrefillEvent) -> Entry:
    """Return what `event` does to a prefill room in `state`."""
    return PREFILL[state][event]


def decode_step(state: DecodeState, event: DecodeEvent) -> Entry:
    """Return what `event` does to a decode room in `state`."""
    return DECODE[state][event]


SHOWN: Mapping[State, str] = {
    P.PARKED: "announced",
    P.TOMBSTONE: "failed",
    P.COMPUTED: "reading",
    D.OPENED: "announced",
    D.OFFERED: "announced",
    D.WANTING: "paired",
    D.COMMITTING: "reading",
    D.FENCING: "failed",
}
"""The word of DESIGN section 4 for states that are finer than it; the others are shown by their own name."""


def shown(state: State) -> str:
    """Return the state's word in `/rooms` and in metrics."""
    return SHOWN.get(state, state.value)
