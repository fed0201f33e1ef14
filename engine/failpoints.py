"""Faults that can be switched on at run time, each a wedge from the field with a known cause (DESIGN section 6).

A failpoint is a method of a running instance that is replaced while it is on, together with the one defence that
would heal the fault. So the code it breaks holds no trace of it: an instance that was started without
`--enable-failpoints` never imports this module, and off costs nothing.

The faults need no flag where signals or flags of the engine cause them: silent-peer (SIGSTOP), crash-loop and oom
(SIGKILL, a memory limit), mismatch (another `--page-size` or `--dtype`).
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.config import Role
from engine.kvcache.pages import Owner
from engine.kvcache.prefix_cache import Lease
from engine.observe.records import FailpointState
from engine.observe.threads import Supervisor
from engine.observe.watchdog import StuckClock
from engine.scheduler.book import Book
from engine.scheduler.loop import Loop
from engine.scheduler.plan import Planner
from engine.scheduler.roles import RoleBehaviour
from engine.scheduler.sequence import Sequence
from engine.transfer import frames
from engine.transfer.frames import Abort, Committed, Failed, Frame, Gone, Ready
from engine.transfer.read_worker import PostRead
from engine.transfer.rooms import Action
from engine.transfer.source_worker import ChunkSummed

log = logging.getLogger(__name__)


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


class Failpoints:
    """The failpoints of one instance. Switched by the observer's thread."""

    def __init__(self, role: Role, parts: Parts) -> None:
        self._known = {point.name: point for point in CATALOGUE if role in point.roles}
        self._parts = parts
        self._armed: dict[str, Patches] = {}
        log.warning("failpoints are enabled: this instance can be made to fail")

    def states(self) -> list[FailpointState]:
        """Return all, in the order of the catalogue."""
        return [
            FailpointState(name=name, fault=point.fault, switches_off=point.switches_off, on=name in self._armed)
            for name, point in self._known.items()
        ]

    def switch(self, name: str, on: bool) -> None:
        """Switch one; an unknown name and a switch that is set already change nothing."""
        point = self._known.get(name)
        if point is None or on == (name in self._armed):
            return
        if on:
            log.warning("failpoint %s is on: %s; off with it: %s", name, point.fault, point.switches_off)
            patches = self._armed[name] = Patches()
            point.arm(self._parts, patches)
        else:
            log.warning("failpoint %s is off", name)
            self._armed.pop(name).undo()


def _mass_abort(parts: Parts, patches: Patches) -> None:
    hear = parts.control.peers.hear

    def hear_until_abort(routing_id: bytes, data: bytes) -> Any:
        envelope = hear(routing_id, data)
        if envelope is not None and isinstance(envelope.body, Abort):
            raise InjectedFault("the control thread does not understand ABORT")
        return envelope

    patches.forsake(parts.supervisor, "transfer-control")
    patches.replace(parts.control.peers, "hear", hear_until_abort)


def _abort_race(parts: Parts, patches: Patches) -> None:
    report = parts.worker._report

    def report_known(item: Any) -> None:
        if isinstance(item, ChunkSummed) and item.rid not in parts.control.steps.by_rid:
            raise InjectedFault(f"a chunk of {item.rid}, whose room is gone")
        report(item)

    patches.forsake(parts.supervisor, "transfer-nixl")
    parts.worker._report = report_known
    patches.finally_do(lambda: setattr(parts.worker, "_report", report))


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


def _stuck_handle(parts: Parts, patches: Patches) -> None:
    worker, released, stuck = parts.worker, threading.Event(), list[str]()
    post, poll, fence = worker._post, worker._poll, worker._fence

    def post_one_that_sticks(order: PostRead) -> None:
        if not stuck:
            stuck.append(order.rid)
        post(order)

    def poll_others(peer: Any) -> None:
        kept = {key: peer.running.pop(key) for key in list(peer.running) if key[0] in stuck}
        poll(peer)
        peer.running.update(kept)

    def fence_without_bound(peer: Any) -> None:
        if peer.fences.keys() & set(stuck):
            released.wait()
        fence(peer)

    patches.replace(worker, "_post", post_one_that_sticks)
    patches.replace(worker, "_poll", poll_others)
    patches.replace(worker, "_fence", fence_without_bound)
    end_instance = parts.control._end_instance
    parts.control._end_instance = lambda why: log.error("failpoint stuck-handle keeps this instance alive: %s", why)
    patches.finally_do(lambda: setattr(parts.control, "_end_instance", end_instance))
    patches.finally_do(stuck.clear)
    patches.finally_do(released.set)


def _lost_failure(parts: Parts, patches: Patches) -> None:
    patches.replace_item(parts.control.steps._actions, Action.PUSH_END, lambda room, frame: None)


def _decode_restart(parts: Parts, patches: Patches) -> None:
    peers = parts.control.peers
    send, first = peers.send, {peer.instance: peer for peer in peers.known.values()}

    def send_to_the_first(peer: Any, frame: Frame) -> None:
        is_about_a_room = frames.room_of(frame) is not None
        send(first.setdefault(peer.instance, peer) if is_about_a_room else peer, frame)

    patches.replace(peers, "send", send_to_the_first)


def _corrupt_page(parts: Parts, patches: Patches) -> None:
    worker = parts.worker

    def trust_wrong_bytes(order: PostRead, seconds: float) -> None:
        worker._pool.bytes_view()[:, :, :, list(order.target_pages)] ^= 0x5A
        worker._finish(order, seconds)

    patches.replace(worker, "_verify", trust_wrong_bytes)


def _leak(parts: Parts, patches: Patches) -> None:
    release = parts.book.release

    def release_all_but_pages(sequence: Sequence, result: str, reason: str | None = None) -> None:
        if reason is not None:
            sequence.pages, sequence.lease, sequence.computed = [], Lease(), 0
        release(sequence, result, reason)

    patches.replace(parts.book, "release", release_all_but_pages)


def _starved(parts: Parts, patches: Patches) -> None:
    take_for = parts.planner.take_for
    too_long = set[int]()

    def take_for_all_but_the_first(sequence: Sequence, owner: Owner) -> bool:
        if owner is not Owner.READING:
            return take_for(sequence, owner)
        if not too_long:
            too_long.add(len(sequence.tokens))
        return len(sequence.tokens) not in too_long and take_for(sequence, owner)

    patches.replace(parts.planner, "take_for", take_for_all_but_the_first)


def _blocking_io(parts: Parts, patches: Patches) -> None:
    turn, silent = parts.loop.turn, socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{silent.getsockname()[1]}/"

    def turn_after_a_call() -> None:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url).close()
        turn()

    def hang_up() -> None:
        caller, _ = silent.accept()
        caller.close()
        silent.close()

    patches.replace(parts.stuck_clock, "beat", lambda turns, longest_step_s: False)
    patches.replace(parts.loop, "turn", turn_after_a_call)
    patches.finally_do(lambda: threading.Thread(target=hang_up, daemon=True).start())


PREFILL, DECODE = (Role.PREFILL,), (Role.DECODE,)

CATALOGUE = (
    Failpoint(
        "mass-abort",
        PREFILL,
        "the control thread dies on the first ABORT",
        "the restart of crashed threads, for the control thread",
        _mass_abort,
    ),
    Failpoint(
        "abort-race",
        PREFILL,
        "the transfer thread dies on a chunk whose room is gone",
        "the restart of crashed threads, for the transfer thread",
        _abort_race,
    ),
    Failpoint(
        "status-thread",
        DECODE,
        "the control thread dies when frames of two rooms interleave",
        "the restart of crashed threads, for the control thread",
        _status_thread,
    ),
    Failpoint(
        "stuck-handle",
        DECODE,
        "the next READ never completes; when its room is aborted, the transfer thread waits for it",
        "the bounds of the fence: dropping the agent after 1 s, ending the instance after 10 s",
        _stuck_handle,
    ),
    Failpoint(
        "lost-failure",
        PREFILL + DECODE,
        "the end of a room is not told to the other side",
        "the repeating of ends until they are acknowledged",
        _lost_failure,
    ),
    Failpoint(
        "decode-restart",
        PREFILL,
        "frames about rooms go to the first decode of that name, also when it was restarted",
        "incarnations, for what is sent",
        _decode_restart,
    ),
    Failpoint(
        "corrupt-page",
        DECODE,
        "pages land with wrong bytes",
        "checksums",
        _corrupt_page,
    ),
    Failpoint(
        "leak",
        PREFILL + DECODE,
        "the pages of requests that fail are never freed",
        "nothing: no defence would heal it",
        _leak,
    ),
    Failpoint(
        "starved",
        DECODE,
        "the next room is taken for one that is longer than the pool, and all others wait behind it",
        "the check that refuses what can never fit",
        _starved,
    ),
    Failpoint(
        "blocking-io",
        (Role.PREFILL, Role.DECODE, Role.UNIFIED),
        "the loop waits in every turn for an HTTP server that never answers",
        "the stuck clock, which would end the instance after 30 s",
        _blocking_io,
    ),
)
