"""Questions to the scheduler's observer thread: one plain socket for all, since health is asked every second, for ever.

The observer answers one question after the other (REP). The number that goes before each comes back with its answer, so
an answer that comes too late is not taken for another question's. A socket for each question costs a millisecond of
processor time more each time (`benchmarks/health.py`).
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any, TypeVar

import msgspec
import zmq

from engine.errors import EngineError
from engine.messages import Observe

Record = TypeVar("Record")


class SchedulerSilent(EngineError):
    """The scheduler's observer did not answer in time: it is starting, gone or stopped."""


class ObserverClient:
    """Owner of the socket. Lives in one event loop."""

    def __init__(self, context: zmq.Context[Any], address: str) -> None:
        """`address` need not be bound yet."""
        self._socket: zmq.Socket[bytes] = zmq.Context(context).socket(zmq.DEALER)
        self._socket.linger = 0
        self._address = address
        self._loop: asyncio.AbstractEventLoop | None = None
        """Once connected."""
        self._numbers = count()
        self._open: dict[bytes, asyncio.Future[bytes]] = {}
        """Questions that wait for their answer, by number."""

    async def ask(self, question: Observe, record: type[Record], timeout_s: float) -> Record:
        """Return the answer. Raises SchedulerSilent when none comes within `timeout_s`."""
        if self._loop is None:
            self._connect()
        number = next(self._numbers).to_bytes(8)
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                self._send([number, b"", msgspec.msgpack.encode(question)])
                return msgspec.msgpack.decode(await answer, type=record)
        except (TimeoutError, zmq.Again) as error:
            message = f"the scheduler did not answer '{question.what}' within {timeout_s:g} s"
            raise SchedulerSilent(message) from error
        finally:
            del self._open[number]

    def _send(self, frames: list[bytes]) -> None:
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        finally:
            self._receive()

    def _connect(self) -> None:
        # Not before the first question: until the scheduler has bound it, each attempt would be in vain.
        self._socket.connect(self._address)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._receive)

    def _receive(self) -> None:
        """Take every answer that is there: the descriptor tells of the first one only, and a send may swallow that."""
        while True:
            try:
                number, _, answer = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            waiting = self._open.get(number)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)

    def close(self) -> None:
        """Close the socket."""
        if self._loop is not None:
            self._loop.remove_reader(self._socket)
        self._socket.close(linger=0)
