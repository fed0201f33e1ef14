"""What the control threads do wrong."""

from __future__ import annotations

from typing import Any

from engine.config import Role
from engine.failpoints.parts import Failpoint, InjectedFault, Parts, Patches
from engine.transfer.protocol import frames
from engine.transfer.protocol.frames import Abort, Committed, Failed, Frame, Gone, Ready
from engine.transfer.protocol.rooms import Action


def _mass_abort(parts: Parts, patches: Patches) -> None:
    hear = parts.control.peers.hear

    def hear_until_abort(routing_id: bytes, data: bytes) -> Any:
        envelope = hear(routing_id, data)
        if envelope is not None and isinstance(envelope.body, Abort):
            raise InjectedFault("the control thread does not understand ABORT")
        return envelope

    patches.forsake(parts.supervisor, "transfer-control")
    patches.replace(parts.control.peers, "hear", hear_until_abort)


def _status_thread(parts: Parts, patches: Patches) -> None:
    hear = parts.control.links.hear
    open_rooms: set[int] = set()

    def hear_in_order(link: Any, data: bytes) -> Frame | None:
        frame: Frame | None = hear(link, data)
        if isinstance(frame, Ready):
            if open_rooms - {frame.room}:
                raise InjectedFault(f"READY of room {frame.room} while {open_rooms} is not over")
            open_rooms.add(frame.room)
        elif isinstance(frame, Committed | Gone | Failed):
            open_rooms.discard(frame.room)
        return frame

    patches.forsake(parts.supervisor, "transfer-control")
    patches.replace(parts.control.links, "hear", hear_in_order)


def _lost_failure(parts: Parts, patches: Patches) -> None:
    patches.replace_item(parts.control.steps._actions, Action.PUSH_END, lambda room, frame: None)


def _decode_restart(parts: Parts, patches: Patches) -> None:
    peers = parts.control.peers
    send, first = peers.send, {peer.instance: peer for peer in peers.known.values()}

    def send_to_the_first(peer: Any, frame: Frame) -> None:
        is_about_a_room = frames.room_of(frame) is not None
        send(first.setdefault(peer.instance, peer) if is_about_a_room else peer, frame)

    patches.replace(peers, "send", send_to_the_first)


POINTS = (
    Failpoint(
        "mass-abort",
        (Role.PREFILL,),
        "the control thread dies on the first ABORT",
        "the restart of crashed threads, for the control thread",
        _mass_abort,
    ),
    Failpoint(
        "status-thread",
        (Role.DECODE,),
        "the control thread dies when frames of two rooms interleave",
        "the restart of crashed threads, for the control thread",
        _status_thread,
    ),
    Failpoint(
        "lost-failure",
        (Role.PREFILL, Role.DECODE),
        "the end of a room is not told to the other side",
        "the repeating of ends until they are acknowledged",
        _lost_failure,
    ),
    Failpoint(
        "decode-restart",
        (Role.PREFILL,),
        "frames about rooms go to the first decode of that name, also when it was restarted",
        "incarnations, for what is sent",
        _decode_restart,
    ),
)
