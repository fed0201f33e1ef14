"""How plans reach the other ranks, and what they answer: one ZeroMQ PAIR a rank, over ipc in the run folder.

    rank 0                                rank r
      │  <──────────── Loaded ────────────  │
      │  ─────────── StepPlan n ─────────>  │
      │            (both compute)           │
      │  <─────────── StepDone n ─────────  │
      │  ───────────── Leave ────────────>  │

Never a collective: a rank that waits for a plan waits in no torch call, and a rank that has none enters none.
"""

from __future__ import annotations

import contextlib

import msgspec
import zmq

from engine.errors import RankLost
from engine.scheduler.step_plan import StepPlan, check_number

Context = zmq.Context[zmq.Socket[bytes]]


class Leave(msgspec.Struct, frozen=True, array_like=True, tag="leave"):
    """The instance ends as asked."""


class Loaded(msgspec.Struct, frozen=True, array_like=True, tag="loaded"):
    """A rank has its part of the model and waits for plans."""

    pid: int


class StepDone(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """A rank has computed a plan: it writes to none of the plan's pages any more."""

    number: int


class OtherRanks:
    """Rank 0's end. Used by one thread at a time: the main thread until all are loaded, then the one that computes."""

    def __init__(self, context: Context, run_dir: str, size: int) -> None:
        self._sockets = [_socket(context) for _ in range(1, size)]
        for rank, socket in enumerate(self._sockets, start=1):
            socket.bind(_address(run_dir, rank))
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Loaded | StepDone)
        self.pids: list[int] = []
        """Of the ranks from 1 on, once they are loaded."""

    def wait_loaded(self) -> None:
        """Block until every rank has loaded. One that dies instead ends the instance, and this process with it."""
        for socket in self._sockets:
            answer = self._decoder.decode(socket.recv())
            if isinstance(answer, Loaded):
                self.pids.append(answer.pid)

    def send(self, plan: StepPlan) -> None:
        """Hand a plan to every rank; never blocks. Raises RankLost when one is gone."""
        data = self._encoder.encode(plan)
        for rank, socket in enumerate(self._sockets, start=1):
            try:
                socket.send(data, zmq.NOBLOCK)
            except zmq.Again:
                raise RankLost(f"plan {plan.number} cannot be sent to rank {rank}: its process is gone") from None

    def wait_done(self, number: int) -> None:
        """Block until every rank has computed plan `number`; the stuck clock bounds it. Raises StepGap."""
        for socket in self._sockets:
            answer = self._decoder.decode(socket.recv())
            check_number(number, answer.number if isinstance(answer, StepDone) else 0)

    def leave(self) -> None:
        """Tell every rank to end."""
        for socket in self._sockets:
            with contextlib.suppress(zmq.Again):  # It is gone already.
                socket.send(self._encoder.encode(Leave()), zmq.NOBLOCK)

    def close(self) -> None:
        """Close the sockets, giving what was sent a second."""
        for socket in self._sockets:
            socket.close(1000)


class PlanSource:
    """Another rank's end; used by its main thread."""

    def __init__(self, context: Context, run_dir: str, rank: int) -> None:
        self._socket = _socket(context)
        self._socket.connect(_address(run_dir, rank))
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(StepPlan | Leave)

    def watch(self, descriptor: int) -> None:
        """Have `receive` return early, too, when this descriptor is readable."""
        self._poller.register(descriptor, zmq.POLLIN)

    def receive(self, patience_ms: int) -> list[StepPlan | Leave]:
        """Return all messages that are there, waiting up to `patience_ms` for the first."""
        messages: list[StepPlan | Leave] = []
        self._poller.poll(patience_ms)
        while True:
            try:
                messages.append(self._decoder.decode(self._socket.recv(zmq.NOBLOCK)))
            except zmq.Again:
                return messages

    def report(self, message: Loaded | StepDone) -> None:
        """Tell rank 0; never blocks."""
        self._socket.send(self._encoder.encode(message))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close(0)


def _socket(context: Context) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.PAIR)
    socket.set_hwm(0)
    socket.setsockopt(zmq.LINGER, 0)
    return socket


def _address(run_dir: str, rank: int) -> str:
    return f"ipc://{run_dir}/rank-{rank}"
