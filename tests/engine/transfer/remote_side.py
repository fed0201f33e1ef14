"""A side in a process of its own, driven over a pipe, to be killed or stopped like a real engine."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from engine.config import EngineConfig
from engine.kvcache.pool import KVPool
from engine.transfer.data.nixl_backend import Agent, ReadState
from engine.transfer.data.rank_link import InstanceRanks
from engine.transfer.data.runs import Place, Run, descriptors, merge
from engine.transfer.protocol.contract import layout_of
from engine.transfer.protocol.frames import Geometry
from engine.transfer.protocol.head_runs import head_runs
from tests.engine.transfer.transfer_sides import Decode, OtherRank, Prefill, Registry, Side

# Children are forked from a process that has torch but neither threads nor NIXL: 0.1 s instead of 3 s each.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch", "numpy", "zmq"])


class RemotePrefill:
    """A prefill with its registry. `call` runs a method of `Prefill` there and returns its value."""

    def __init__(self, port: int = 0, **changes: object) -> None:
        self._start(_serve_prefill, port, changes)

    def _start(self, body: Any, *arguments: object) -> None:
        self._pipe, theirs = _context.Pipe()
        transports = os.environ.get("UCX_TLS")
        self.process = _context.Process(target=body, args=(theirs, transports, *arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.address: str = self._answer()

    def call(self, method: str, *arguments: object) -> Any:
        self._pipe.send((method, arguments))
        return self._answer()

    def _answer(self) -> Any:
        assert self._pipe.poll(40), "the other process does not answer"
        ok, value = self._pipe.recv()
        assert ok, value
        return value

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """kill -9, and reap."""
        self.signal(signal.SIGKILL)
        self.process.join()

    def end(self) -> None:
        """Whatever state it is in, leave nothing running."""
        if self.process.is_alive():
            self.kill()
        self._pipe.close()
        self.process.close()


class RemoteDecode(RemotePrefill):
    """A decode in its own process."""

    def __init__(self, *peers: str, **changes: object) -> None:
        self._start(_serve_decode, peers, changes)


class RemoteRank(RemotePrefill):
    """A rank other than 0 of a prefill or decode, in its own process."""

    def __init__(self, config: EngineConfig, ranks: InstanceRanks, rank: int) -> None:
        self._start(_serve_rank, config, ranks, rank)


class RemoteReader(RemotePrefill):
    """A bare NIXL agent that reads a prefill's whole pool many times over in one READ."""

    def __init__(self, metadata: bytes, geometry: Geometry) -> None:
        self._start(_serve_reader, metadata, geometry)

    def post(self) -> None:
        """Post the READ; returns when it is on its way."""
        self.call("__call__")


def _serve_reader(pipe: Connection, transports: str | None, metadata: bytes, geometry: Geometry) -> None:
    _use(transports)
    pool = KVPool(layout_of(geometry))
    agent = Agent("reader", pool)
    peer = agent.add_peer(metadata)
    pages = list(range(pool.layout.pages))
    place = Place(geometry.address, pool.layout)
    (heads,) = head_runs([range(geometry.kv_heads)], [range(geometry.kv_heads)])
    connected = agent.read(peer, *descriptors(place, Place(pool.address, pool.layout), merge([0], [0]), heads))
    while agent.poll(connected) is ReadState.RUNNING:
        pass
    pipe.send((True, ""))
    runs = [Run(page, page, 1) for page in pages] * 20
    here, there = descriptors(place, Place(pool.address, pool.layout), runs, heads)

    def post() -> None:
        read = agent.read(peer, here, there)
        assert agent.poll(read) is ReadState.RUNNING, read.error

    _serve(pipe, post)


def _serve_prefill(pipe: Connection, transports: str | None, port: int, changes: dict[str, Any]) -> None:
    _use(transports)
    registry, prefill = Registry(port), Prefill(**changes)
    registry.publish(prefill)
    pipe.send((True, registry.address))
    _serve(pipe, prefill)


def _serve_decode(pipe: Connection, transports: str | None, peers: tuple[str, ...], changes: dict[str, Any]) -> None:
    _use(transports)
    pipe.send((True, ""))
    _serve(pipe, Decode(*peers, **changes))


def _serve_rank(
    pipe: Connection, transports: str | None, config: EngineConfig, ranks: InstanceRanks, rank: int
) -> None:
    _use(transports)
    other = OtherRank(config, ranks, rank)
    pipe.send((True, ""))
    _serve(pipe, other)


def _use(transports: str | None) -> None:
    """Set UCX_TLS as the test has it now; the fork server's environment is older."""
    os.environ.pop("UCX_TLS", None)
    if transports is not None:
        os.environ["UCX_TLS"] = transports


def _serve(pipe: Connection, side: Side | Callable[[], None]) -> None:
    while True:
        method, arguments = pipe.recv()
        target: Any = side
        for name in method.split("."):
            target = getattr(target, name)
        try:
            pipe.send((True, target(*arguments)))
        except BaseException as error:
            pipe.send((False, repr(error)))
