"""How rank 0's control thread commands the transfer workers of all ranks, and hears of them.

Its own worker is a queue away. Those of the other ranks are reached over one ZeroMQ pair each (ipc, in the instance's
run folder, msgpack), where a thread of theirs hands orders and reports on. Reports are the in-instance queue of
invariant 6: no rank decides anything by itself. A rank that is gone ends the instance, so nothing here reconnects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event
from typing import Any, Generic, TypeVar

import msgspec
import zmq

from engine.clock import Clock
from engine.errors import TransferError
from engine.transfer.inbox import Inbox

START_TIMEOUT_MS = 60_000
STATE_EVERY_MS = 1000

Order = TypeVar("Order")
Report = TypeVar("Report")


@dataclass(frozen=True, slots=True)
class InstanceRanks:
    """The ranks of this instance: which of the model's KV heads each holds, and the folder of their sockets."""

    kv_heads: tuple[range, ...]
    run_dir: str

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.kv_heads)

    def endpoint(self, rank: int) -> str:
        """Return the ipc address at which rank 0 meets this one."""
        return f"ipc://{self.run_dir}/transfer-{rank}"


class RankState(msgspec.Struct, frozen=True, tag="state"):
    """How a rank's transfer worker is; the first one says that it is there."""

    problems: list[str]
    losses: int
    """Agents dropped by a reader, data-plane processes lost by a source, since the start."""


class RankHub(Generic[Order, Report]):
    """Rank 0's end; belongs to the control thread once that has started."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        ranks: InstanceRanks,
        own: Callable[[Order], None],
        report_type: Any,
    ) -> None:
        """`own` takes the orders of rank 0 itself; `report_type` is the union of what workers report."""
        self.states: dict[int, RankState] = {}
        """By rank, without rank 0; replaced, never changed, so that any thread may read."""
        self._own = own
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Report | RankState] = msgspec.msgpack.Decoder(report_type | RankState)
        self._sockets = {rank: _pair(context) for rank in range(1, ranks.size)}
        for rank, socket in self._sockets.items():
            socket.bind(ranks.endpoint(rank))

    @property
    def size(self) -> int:
        """Number of ranks, rank 0 included."""
        return 1 + len(self._sockets)

    def sockets(self) -> list[zmq.Socket[bytes]]:
        """Return what to wait for."""
        return list(self._sockets.values())

    def tell(self, rank: int, order: Order) -> None:
        """Give one rank an order. Raises TransferError when that rank is gone."""
        if rank == 0:
            self._own(order)
            return
        try:
            self._sockets[rank].send(self._encoder.encode(order), zmq.NOBLOCK)
        except zmq.Again:
            raise TransferError(f"rank {rank} takes no orders any more; the instance has to end") from None

    def tell_all(self, order: Order) -> None:
        """Give every rank an order."""
        for rank in range(self.size):
            self.tell(rank, order)

    def receive(self) -> Iterator[tuple[int, Report]]:
        """Yield (rank, report) of what the other ranks have sent."""
        for rank, socket in self._sockets.items():
            while socket.poll(0):
                heard = self._decoder.decode(socket.recv())
                if isinstance(heard, RankState):
                    self.states = self.states | {rank: heard}
                else:
                    yield rank, heard

    def await_ranks(self) -> list[tuple[int, Report]]:
        """Wait until every rank has said that it is there; returns what they reported meanwhile.

        Raises TransferError after a minute. Called before the control thread starts.
        """
        reports: list[tuple[int, Report]] = []
        for rank, socket in self._sockets.items():
            while rank not in self.states:
                if not socket.poll(START_TIMEOUT_MS):
                    waited = START_TIMEOUT_MS // 1000
                    raise TransferError(
                        f"the transfer worker of rank {rank} did not start within {waited} s; see its log"
                    )
                reports += self.receive()
        return reports

    def problems(self) -> list[str]:
        """Return what is wrong on the other ranks."""
        return [f"rank {rank}: {problem}" for rank, state in self.states.items() for problem in state.problems]

    def losses(self) -> int:
        """Return the other ranks' losses together."""
        return sum(state.losses for state in self.states.values())

    def close(self) -> None:
        """Close the sockets."""
        for socket in self._sockets.values():
            socket.close()


class RankPort(Generic[Order, Report]):
    """The end of a rank other than 0: `report` may be called from any thread, `run` is the body of a thread."""

    def __init__(
        self,
        ranks: InstanceRanks,
        rank: int,
        take: Callable[[Order], None],
        order_type: Any,
        clock: Clock,
        stopping: Event,
    ) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = _pair(self._context)
        self._socket.connect(ranks.endpoint(rank))
        self._take = take
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(order_type)
        self._reports: Inbox[Report] = Inbox()
        self._clock = clock
        self._stopping = stopping
        self._next_state = 0.0

    def report(self, report: Report) -> None:
        """Send to rank 0."""
        self._reports.put(report)

    def run(self, state: Callable[[], RankState]) -> None:
        """Hand on orders and reports; say every second how this rank is."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._reports.fileno(), zmq.POLLIN)
        while not self._stopping.is_set():
            if self._clock.monotonic() >= self._next_state:
                self._next_state = self._clock.monotonic() + STATE_EVERY_MS / 1000
                self._socket.send(self._encoder.encode(state()))
            poller.poll(STATE_EVERY_MS)
            for report in self._reports.take_all():
                self._socket.send(self._encoder.encode(report))
            while self._socket.poll(0):
                self._take(self._decoder.decode(self._socket.recv()))
        self._socket.close()
        self._context.term()


def _pair(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.PAIR)
    socket.setsockopt(zmq.LINGER, 0)
    # Unbounded: what waits is bounded by the rooms there are, and a rank that hangs ends the instance.
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    return socket
