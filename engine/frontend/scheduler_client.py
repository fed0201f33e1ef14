"""The API process's end of the three sockets to the scheduler process.

`requests` (PUSH) and `outputs` (PULL) are bound here, `observe` is bound by the scheduler. All are ipc
sockets in a private folder. No socket here can block the event loop: what waits to be sent is bounded not by
a high-water mark but by `capacity`, the number of sequences in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TypeVar

import msgspec
import zmq
import zmq.asyncio

from engine.errors import RequestError
from engine.frontend.observer_client import ObserverClient, SchedulerSilent
from engine.messages import (
    Abort,
    Batch,
    Delta,
    Drain,
    Failure,
    FromScheduler,
    Generate,
    Observe,
    Ready,
    ToScheduler,
)

Outputs = asyncio.Queue[Delta | Failure]
"""What the scheduler says about the sequences of one HTTP request, in order."""

Record = TypeVar("Record")

OBSERVE_TIMEOUT_S = 2.0


class SchedulerClient:
    """Owner of the API process's sockets; routes deltas to the requests that wait for them."""

    def __init__(self, run_dir: Path, capacity: int) -> None:
        """Bind `requests` and `outputs` in `run_dir`; at most `capacity` sequences are in flight at once."""
        self.ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self._run_dir = run_dir
        self._capacity = capacity
        self._waiting: dict[str, Outputs] = {}
        self._context = zmq.asyncio.Context()
        # A plain socket: with no high-water mark a send either succeeds at once or there is no scheduler.
        self._requests: zmq.Socket[bytes] = zmq.Context(self._context).socket(zmq.PUSH)
        self._outputs = self._context.socket(zmq.PULL)
        for socket, name in ((self._requests, "requests"), (self._outputs, "outputs")):
            socket.set_hwm(0)
            socket.linger = 0
            socket.bind(self._address(name))
        self._observer = ObserverClient(self._context, self._address("observe"))
        self._encoder = msgspec.msgpack.Encoder()

    @property
    def in_flight(self) -> int:
        """Return the number of sequences whose end has not come."""
        return len(self._waiting)

    def live_rids(self) -> list[str]:
        """Return the ids of the sequences in flight."""
        return list(self._waiting)

    def submit(self, sequences: list[Generate], outputs: Outputs) -> None:
        """Send sequences to the scheduler; what becomes of them arrives in `outputs`.

        Raises RequestError (503) when the instance is full, (400) when it could not even take them idle, and
        SchedulerSilent when there is no scheduler.
        """
        if len(sequences) > self._capacity:
            message = f"n: {len(sequences)} sequences in one request, this instance takes {self._capacity} at once"
            raise RequestError(400, "invalid_value", message + "; ask for fewer prompts or choices", "n")
        if len(self._waiting) + len(sequences) > self._capacity:
            message = f"this instance has {len(self._waiting)} sequences in flight and takes {self._capacity}"
            raise RequestError(503, "queue_full", message + "; try again later")
        for sequence in sequences:
            self._waiting[sequence.rid] = outputs
        for sequence in sequences:
            self._send(sequence)

    def abort(self, rid: str, reason: str, satisfied: bool = False) -> None:
        """Ask the scheduler to end a sequence, or all of a request_id; the end comes as any other.

        `satisfied`: the client has all it wanted, so nothing failed.
        """
        # Without a scheduler there is nothing to end.
        with contextlib.suppress(SchedulerSilent):
            self._send(Abort(rid, reason, satisfied))

    def drain(self) -> None:
        """Tell the scheduler to take nothing new, finish, and exit. Raises SchedulerSilent without one."""
        self._send(Drain())

    def is_waiting(self, rid: str) -> bool:
        """Return whether the end of a sequence has not come."""
        return rid in self._waiting

    def forget(self, rid: str) -> None:
        """Drop what still comes for a sequence."""
        self._waiting.pop(rid, None)

    def fail_all(self, code: str, message: str) -> None:
        """End every sequence in flight with a 503."""
        for rid, outputs in list(self._waiting.items()):
            outputs.put_nowait(Failure(rid=rid, status=503, code=code, message=message))
        self._waiting.clear()

    async def observe(
        self, what: str, record: type[Record], timeout_s: float = OBSERVE_TIMEOUT_S, argument: str = ""
    ) -> Record:
        """Ask the observer thread, which answers even while the scheduler's loop is stuck.

        Raises SchedulerSilent when no answer comes within `timeout_s`.
        """
        return await self._observer.ask(Observe(what, argument), record, timeout_s)

    async def receive(self) -> None:
        """Route what the scheduler sends, until cancelled. Run as one task; its failure ends the instance."""
        decoder = msgspec.msgpack.Decoder(FromScheduler)
        while True:
            message = decoder.decode(await self._outputs.recv())
            if isinstance(message, Batch):
                for item in message.items:
                    self._route(item)
            elif not self.ready.done():
                self.ready.set_result(message)

    def close(self) -> None:
        """Close the sockets; nothing is sent any more."""
        self._requests.close(linger=0)
        self._outputs.close(linger=0)
        self._observer.close()
        self._context.destroy(linger=0)

    def _route(self, item: Delta | Failure) -> None:
        outputs = self._waiting.get(item.rid)
        if outputs is None:
            return
        if isinstance(item, Failure) or item.finish is not None:
            del self._waiting[item.rid]
        outputs.put_nowait(item)

    def _send(self, message: ToScheduler) -> None:
        try:
            self._requests.send(self._encoder.encode(message), zmq.NOBLOCK)
        except zmq.Again as error:
            raise SchedulerSilent("the scheduler is not connected: it is starting, or gone") from error

    def _address(self, name: str) -> str:
        return f"ipc://{self._run_dir / name}"
