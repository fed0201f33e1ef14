"""Questions to the observer: answers in any order of need, none taken for another's, silence bounded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from engine.frontend.observer_client import ObserverClient, SchedulerSilent
from engine.messages import Observe


class Observer:
    """A real REP socket in a thread of its own, as the scheduler's; repeats what it is asked once `goes_on` is set."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self._context = context
        self._address = address
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with self._context.socket(zmq.REP) as socket:
            socket.linger = 0
            socket.bind(self._address)
            while not self._stopping.is_set():
                if socket.poll(10):
                    question = msgspec.msgpack.decode(socket.recv(), type=Observe)
                    self.goes_on.wait()
                    socket.send(msgspec.msgpack.encode(question.what))

    def stop(self) -> None:
        self._stopping.set()
        self.goes_on.set()
        self._thread.join()


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    with zmq.Context() as made:
        yield made


@pytest.fixture
def start(context: zmq.Context[zmq.Socket[bytes]], tmp_path: Path) -> Iterator[Callable[[], Observer]]:
    """Start observers at one address, one after the other."""
    started: list[Observer] = []

    def begin() -> Observer:
        started.append(Observer(context, f"ipc://{tmp_path}/observe"))
        return started[-1]

    yield begin
    for each in started:
        each.stop()


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/observe"


def asking(context: zmq.Context[zmq.Socket[bytes]], address: str, *steps: Callable[[ObserverClient], object]) -> object:
    """Carry out steps that ask, one after the other in one loop; return what the last one gave."""

    async def run() -> object:
        client, given = ObserverClient(context, address), None
        try:
            for step in steps:
                given = step(client)
                if asyncio.iscoroutine(given) or asyncio.isfuture(given):
                    given = await given
            return given
        finally:
            client.close()

    return asyncio.run(run())


def question(what: str, timeout_s: float = 20.0) -> Callable[[ObserverClient], object]:
    return lambda client: client.ask(Observe(what), str, timeout_s)


def silent(what: str) -> Callable[[ObserverClient], object]:
    """A question that gets no answer in time."""

    async def ask(client: ObserverClient) -> None:
        with pytest.raises(SchedulerSilent, match=f"did not answer '{what}' within 0.05 s"):
            await client.ask(Observe(what), str, 0.05)

    return ask


def test_questions_at_once_get_their_own_answers(
    context: zmq.Context[zmq.Socket[bytes]], start: Callable[[], Observer], address: str
) -> None:
    """A hundred of them, over one connection."""
    start()
    words = [f"question {number}" for number in range(100)]
    together = asking(
        context, address, lambda client: asyncio.gather(*(client.ask(Observe(word), str, 20.0) for word in words))
    )
    assert together == words


def test_a_late_answer_is_nobodys(
    context: zmq.Context[zmq.Socket[bytes]], start: Callable[[], Observer], address: str
) -> None:
    """The observer stands still, a question is given up, it goes on: the next question gets its own answer."""
    observer = start()
    observer.goes_on.clear()
    given = asking(context, address, silent("first"), lambda _: observer.goes_on.set(), question("second"))
    assert given == "second"


def test_an_observer_that_comes_back_is_found(
    context: zmq.Context[zmq.Socket[bytes]], start: Callable[[], Observer], address: str
) -> None:
    """The thread crashed and was started again: it binds the same address, and the next question reaches it."""
    first = start()
    given = asking(
        context,
        address,
        question("before"),
        lambda _: first.stop(),
        silent("while"),
        lambda _: start(),
        question("after"),
    )
    assert given == "after"


def test_nobody_there_is_silence(context: zmq.Context[zmq.Socket[bytes]], address: str) -> None:
    """Also for more questions than the socket keeps."""
    asking(context, address, *[silent("anything")] * 2)
    many = [lambda client: client.ask(Observe("x"), str, 0.05)] * 1500

    async def all_silent(client: ObserverClient) -> list[BaseException | str]:
        return await asyncio.gather(*(ask(client) for ask in many), return_exceptions=True)

    given = asking(context, address, all_silent)
    assert isinstance(given, list)
    assert {type(each) for each in given} == {SchedulerSilent}
