"""Asking instances how they are, over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from pdctl.collect import liveness
from pdctl.deployment.model import Instance, Role


@contextmanager
def server(respond: Callable[[socket.socket], None]) -> Iterator[str]:
    """Give the url of a server that treats each connection with `respond`."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def handle(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                respond(connection)
            except OSError:
                pass  # the client left, which is what some tests are about

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=handle, args=(connection,)))
            threads[-1].start()

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()
        for thread in threads:
            thread.join()


def answering(status: int, body: bytes) -> Callable[[socket.socket], None]:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return lambda connection: connection.sendall(head.encode() + body)


def ask(url: str, timeout_s: float = 5.0, *, with_loads: bool = False) -> liveness.Answer:
    instance = Instance(name="i", role=Role.DECODE, dialect="pdctl", url=url)
    return liveness.ask_all([instance], timeout_s, with_loads=with_loads)["i"]


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, b"", None),
        (200, b"not json", None),
        (503, b'{"ok": false, "problems": ["loop stuck", "thread dead"]}', "503: loop stuck; thread dead"),
        (503, b'{"status": "loading", "role": "prefill"}', "503: loading"),
        (503, b'{"status": "not ready", "reason": "no workers"}', "503: no workers"),
        (500, b"<html>oops", "500: <html>oops"),
        (404, b"", "404"),
        (503, b"\xff\xfe", "503: \ufffd\ufffd"),
    ],
)
def test_problem_in_the_instance_own_words(status: int, body: bytes, problem: str | None) -> None:
    """Only 200 is well; whatever the body is, it is shown and never trips us."""
    with server(answering(status, body)) as url:
        assert ask(url).problem == problem


def test_loads_are_read() -> None:
    """The oldest age is the largest of all queues."""
    body = b'{"running": 2, "waiting": 5, "queues": {}, "oldest_age_s": {"a": 1.5, "b": 40.0}, "more": 1}'
    with server(answering(200, body)) as url:
        loads = ask(url, with_loads=True).loads
    assert loads is not None
    assert (loads.running, loads.waiting, loads.oldest_s) == (2, 5, 40.0)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"running": "many"}'])
def test_loads_that_cannot_be_read_are_unknown(body: bytes) -> None:
    """An engine of another version is still well."""
    with server(answering(200, body)) as url:
        answer = ask(url, with_loads=True)
    assert (answer.is_well, answer.loads) == (True, None)


def test_refused() -> None:
    """Nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert ask(f"http://127.0.0.1:{bound.getsockname()[1]}").problem == "refused"


def test_connection_that_is_closed_without_an_answer() -> None:
    """A crash in mid-request is a problem with words."""
    with server(lambda connection: None) as url:
        assert ask(url).problem not in (None, "", "refused")


def test_all_hung_instances_together_cost_one_timeout() -> None:
    """One never answers, one sends a byte now and then for ever: no per-read timeout would end that."""
    is_over = threading.Event()

    def trickle(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not is_over.wait(0.05):
            connection.sendall(b"x")

    with server(lambda connection: is_over.wait(60) and None) as silent, server(trickle) as slow:
        instances = [
            Instance(name=name, role=Role.PREFILL, dialect="pdctl", url=url)
            for name, url in (("silent-0", silent), ("slow-0", slow))
        ]
        started = time.monotonic()
        answers = liveness.ask_all(instances, 0.5)
        took_s = time.monotonic() - started
        is_over.set()
    assert {answer.problem for answer in answers.values()} == {"no answer within 0.5 s"}
    assert took_s < 30


@pytest.mark.parametrize(
    ("role", "dialect", "path"),
    [
        (Role.ROUTER, "smg", "/readiness"),
        (Role.ROUTER, "vllm-router", "/health"),
        (Role.PREFILL, "pdctl", "/health"),
    ],
)
def test_health_path(role: Role, dialect: str, path: str) -> None:
    """smg's /health is 200 without any worker."""
    assert liveness.health_path(Instance(name="i", role=role, dialect=dialect, url="http://x")) == path
