"""Lookups at registries: each has an end, and none holds up another."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from engine.transfer.control import registry
from engine.transfer.control.registry import RegistryRecord, Resolved, Resolver, look_up
from tests.engine.transfer.transfer_sides import Registry, eventually

WAIT_S = 10.0
HEAD = b"HTTP/1.1 200 OK\r\n"


class Trickle:
    """A server that sends its answer's head, then a byte now and then, until nobody listens."""

    def __init__(self, head: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(head,))
        self._thread.start()

    def _serve(self, head: bytes) -> None:
        connection, _ = self._listener.accept()
        with connection:
            try:
                connection.sendall(head)
                while not self._ends.wait(0.02):
                    connection.sendall(b"x")
            except OSError:
                return

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        self._listener.close()


@pytest.mark.parametrize(
    "head", [b"", HEAD, HEAD + b"\r\n", HEAD + b"Content-Length: 60000\r\n\r\n"],
    ids=["status line", "headers", "body without a length", "long body"],
)  # fmt: skip
def test_an_answer_that_trickles_is_given_up(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is on the whole answer, wherever it is slow."""
    monkeypatch.setattr(registry, "LOOKUP_TIMEOUT_S", 0.3)
    server, found = Trickle(head), SimpleQueue[Resolved]()
    thread = threading.Thread(target=lambda: found.put(look_up(server.address, 7)))
    thread.start()
    try:
        assert found.get(timeout=WAIT_S) == Resolved(server.address, 7, None, "timed out")
    finally:
        server.end()
        thread.join()


def test_what_a_registry_says_is_told() -> None:
    """Its record, that it has none yet, or that nobody is there."""
    server = Registry()
    try:
        assert look_up(server.address, 1).error == "its registry answers 503"
        server.answer = b"<html>"
        assert look_up(server.address, 1).error.startswith("its registry: the answer is no registry record")
        server.answer = (
            b'{"instance":"p","incarnation":"x","role":"prefill","control_endpoint":"tcp://h:1","contract":{}}'
        )
        record = look_up(server.address, 1).record
        assert isinstance(record, RegistryRecord)
        assert record.incarnation == "x"
    finally:
        server.stop()
    assert look_up(server.address, 1).error == "connection refused"
    assert look_up("127.0.0.1:no", 1).error == "nonnumeric port: 'no'"


class Lookups:
    """In place of `look_up`: those of an address that hangs end when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: SimpleQueue[Resolved] = SimpleQueue()
        self.begun: list[tuple[str, int]] = []
        self.goes_on = threading.Event()
        self.resolver = Resolver(self.answers.put)
        monkeypatch.setattr(registry, "look_up", self._look_up)

    def _look_up(self, bootstrap: str, number: int) -> Resolved:
        self.begun.append((bootstrap, number))
        if bootstrap == "hangs":
            self.goes_on.wait()
        return Resolved(bootstrap, number, None, "nobody is there")

    def answer(self) -> tuple[str, int]:
        """Wait for the next answer."""
        answer = self.answers.get(timeout=WAIT_S)
        return answer.bootstrap, answer.number


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lookups]:
    made = Lookups(monkeypatch)
    yield made
    made.goes_on.set()
    eventually(lambda: not made.resolver._newest)


def test_a_lookup_that_hangs_holds_up_no_other(lookups: Lookups) -> None:
    """A healthy prefill is found while a name server does not answer for another."""
    lookups.resolver.ask("hangs", 1)
    lookups.resolver.ask("works", 2)
    assert lookups.answer() == ("works", 2)


def test_an_address_has_one_lookup_at_a_time(lookups: Lookups) -> None:
    """Who asks again while one hangs starts no other; the last question is answered when that has ended."""
    lookups.resolver.ask("hangs", 1)
    eventually(lambda: lookups.begun)
    for number in (2, 3, 4):
        lookups.resolver.ask("hangs", number)
    assert lookups.begun == [("hangs", 1)]
    lookups.goes_on.set()
    assert [lookups.answer(), lookups.answer()] == [("hangs", 1), ("hangs", 4)]
    eventually(lambda: not lookups.resolver._newest)
    lookups.resolver.ask("hangs", 5)
    assert lookups.answer() == ("hangs", 5)
    assert lookups.begun == [("hangs", 1), ("hangs", 4), ("hangs", 5)]


def test_a_thread_that_cannot_be_started_is_an_answer(lookups: Lookups, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link is tried again like any other, and its address is not taken for one that is at work."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        lookups.resolver.ask("works", 1)
    assert lookups.answers.get(timeout=WAIT_S).error == "lookup failed: can't start new thread"
    lookups.resolver.ask("works", 2)
    assert lookups.answer() == ("works", 2)
