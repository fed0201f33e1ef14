"""A side in a process of its own, driven over a pipe, to be killed or stopped like a real engine."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from typing import Any

from transfer_sides import Decode, Prefill, Registry


class RemotePrefill:
    """A prefill with its registry. `call` runs a method of `Prefill` there and returns its value."""

    def __init__(self, port: int = 0, **changes: object) -> None:
        self._start(_serve_prefill, port, changes)

    def _start(self, body: Any, *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=body, args=(theirs, *arguments), daemon=True)
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


def _serve_prefill(pipe: Connection, port: int, changes: dict[str, Any]) -> None:
    registry, prefill = Registry(port), Prefill(**changes)
    registry.publish(prefill)
    pipe.send((True, registry.address))
    _serve(pipe, prefill)


def _serve_decode(pipe: Connection, peers: tuple[str, ...], changes: dict[str, Any]) -> None:
    pipe.send((True, ""))
    _serve(pipe, Decode(*peers, **changes))


def _serve(pipe: Connection, side: Prefill | Decode) -> None:
    while True:
        method, arguments = pipe.recv()
        target: Any = side
        for name in method.split("."):
            target = getattr(target, name)
        try:
            pipe.send((True, target(*arguments)))
        except BaseException as error:
            pipe.send((False, repr(error)))
