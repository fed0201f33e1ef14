"""Prefill's data-plane process: lets readers' READs move, and computes checksums. No torch, no sockets of ours.

`python -m engine.transfer.data.plane_process SOCKET MEMORY`, two inherited file descriptors: the channel to the
scheduler, and the KV pool, which both processes map.

Why a process. UCX emulates a READ over TCP by a request that the source answers. When the reader's connection
breaks between the two (kill -9 in mid-READ, or a fence: a dropped agent), `uct_tcp_ep_handle_send_err` returns
ENDPOINT_TIMEOUT from the send, `ucp_progress_get_reply` hands it on, and `ucp_request_try_send` knows nothing
better than `ucs_fatal`: abort (UCX 1.23 and its master of 2026-08, `src/ucp/rma/rma_sw.c`). Requests that wait
in the socket's buffer are read even after a reset, so no setting avoids it (tried: PROTO_ENABLE, RNDV_SCHEME,
HANDLE_ERRORS, keepalive, PUT_ENABLE, error mode none). So prefill keeps the agent in a
process that may die: the pages and rooms stay with the scheduler, which starts the next one.

Without NIXL's progress thread (it burns a core) READs over TCP move only while this polls: every 0.1 ms while a
reader is expected to read, every 2 ms while rooms wait to be read, every 20 ms when idle (0.5 % of a core).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import time

from engine.errors import TransferError
from engine.kvcache.layout import SharedPages
from engine.transfer.data.checksums import page_checksums
from engine.transfer.data.nixl_backend import Agent
from engine.transfer.data.plane_messages import (
    Open,
    Opened,
    Ping,
    PlaneClosed,
    PollTightly,
    Pong,
    Sum,
    Summed,
    ToPlane,
    Unusable,
    receive_order,
    send,
)

IDLE_POLL_MS = 20
READING_POLL_MS = 2
HOT_PAUSE_S = 100e-6
HOT_S = 0.2
PR_SET_PDEATHSIG = 1


class DataPlane:
    """One agent over one pool, until the scheduler closes the channel."""

    def __init__(self, agent: Agent, pages: SharedPages, channel: socket.socket) -> None:
        self._agent = agent
        self._pages = pages
        self._channel = channel
        self._rooms_reading = 0
        self._hot_until = 0.0
        self._poller = select.poll()
        self._poller.register(channel.fileno(), select.POLLIN)

    def run(self) -> None:
        """Poll and obey; raises PlaneClosed when the scheduler is gone or wants no more."""
        while True:
            self._agent.progress()
            if time.monotonic() < self._hot_until:
                time.sleep(HOT_PAUSE_S)
            else:
                self._poller.poll(READING_POLL_MS if self._rooms_reading else IDLE_POLL_MS)
            while (order := receive_order(self._channel)) is not None:
                self._obey(order)
                self._agent.progress()

    def _obey(self, order: ToPlane) -> None:
        match order:
            case Sum(pages):
                send(self._channel, self._sum(pages))
            case PollTightly(rooms_reading):
                self._rooms_reading = rooms_reading
                self._hot_until = time.monotonic() + HOT_S
            case Ping():
                send(self._channel, Pong())
            case Open():
                raise ValueError("opened twice")

    def _sum(self, pages: list[int]) -> Summed:
        try:
            return Summed(page_checksums(self._pages, pages))
        except Exception as error:
            return Summed(b"", f"{type(error).__name__}: {error}")


def serve(channel: socket.socket, memory: int) -> None:
    """Make the agent that the first message asks for, then serve. Raises PlaneClosed at the end."""
    select.select([channel], [], [])
    opened = receive_order(channel)
    if not isinstance(opened, Open):
        raise ValueError(f"the first message is {opened!r}, not Open")
    pages = SharedPages(opened.layout, memory)
    try:
        agent = Agent(opened.agent_name, pages)
    except TransferError as error:
        send(channel, Unusable(str(error)))
        return
    send(channel, Opened(agent.metadata, pages.address))
    DataPlane(agent, pages, channel).run()


def main() -> int:
    """Serve until the scheduler goes. 0: it closed the channel; -6: UCX gave up, see the module."""
    # The kernel ends this process when the thread that started it is gone, however that went.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    channel = socket.socket(fileno=int(sys.argv[1]))
    with contextlib.suppress(PlaneClosed):
        serve(channel, int(sys.argv[2]))
    # Nothing is worth the time that UCX takes to leave in good order.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
