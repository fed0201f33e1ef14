"""What goes wrong between ranks. The defence is that no rank decides alone, and that none outlives another."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Any

from engine.config import Role
from engine.errors import RankLost
from engine.failpoints.parts import Failpoint, Parts, Patches
from engine.failpoints.workers import keep_alive
from engine.messages import Abort, ToScheduler
from engine.scheduler.roles import Decode
from engine.scheduler.step_plan import StepPlan

EVERY_ROLE = (Role.PREFILL, Role.DECODE, Role.UNIFIED)


def _desync(parts: Parts, patches: Patches) -> None:
    handle, send = parts.loop._handle, parts.others.send
    has_aborted = threading.Event()

    def handle_and_note(message: ToScheduler) -> None:
        handle(message)
        if isinstance(message, Abort):
            has_aborted.set()

    def send_until_an_abort(plan: StepPlan) -> None:
        if not has_aborted.is_set():
            send(plan)

    patches.replace(parts.stuck_clock, "beat", lambda turns: False)
    patches.replace(parts.loop, "_handle", handle_and_note)
    patches.replace(parts.others, "send", send_until_an_abort)


def _zombie(parts: Parts, patches: Patches) -> None:
    take_results = parts.loop._take_results

    def go_on_without_results() -> bool:
        with contextlib.suppress(RankLost):
            take_results()
        return True

    patches.replace(parts.loop, "_take_results", go_on_without_results)
    if parts.role.transfer is not None:
        _transfer_without_the_last(parts, patches)
    os.kill(parts.others.pids[-1], signal.SIGKILL)


class _Unheard:
    """The socket to a rank that is gone: takes every order, and nobody hears it. All else is the socket's own."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket

    def send(self, data: bytes, flags: int = 0) -> None:
        """Drop it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def _transfer_without_the_last(parts: Parts, patches: Patches) -> None:
    is_decode = isinstance(parts.role, Decode)
    sockets = (parts.control.hub if is_decode else parts.control.sources.hub)._sockets
    last = max(sockets)
    patches.replace_item(sockets, last, _Unheard(sockets[last]))
    if is_decode:
        keep_alive(parts, patches, "zombie")


POINTS = (
    Failpoint(
        "desync",
        EVERY_ROLE,
        "after the next abort rank 0 begins a step that it tells no other rank: one waits in a collective, one is idle",
        "the stuck clock, which would end the instance after 30 s",
        _desync,
        least_ranks=2,
    ),
    Failpoint(
        "zombie",
        EVERY_ROLE,
        "the last rank is killed, and the instance goes on answering without it",
        "the end of the instance with any of its ranks; that a loop without results counts as hung; the fence's bound",
        _zombie,
        least_ranks=2,
        leaves_dead_ranks=True,
    ),
)
