"""Every way in which a request can end, on a real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import msgspec
import pytest

from pdctl.load.background import BackgroundLoad
from pdctl.load.canaries import KnownAnswers
from pdctl.load.generator import Generator
from pdctl.load.profile import Profile, Range
from pdctl.load.tally import Figures
from pdctl.load.wire import Endpoint
from tests.fakes.http_server import FakeServer, Handler, Reply, Request
from tests.ports import free_port
from tests.waiting import eventually

PATH = "/v1/chat/completions"
STREAM = {"Content-Type": "text/event-stream"}
TOKEN = b'data: {"choices":[{"delta":{"content":"Paris "}}]}\n\n'
DONE = b"data: [DONE]\n\n"
ONE = Profile(sessions=1, turns=Range(1, 1), tool_rate=0, canary_rate=0, timeout_s=20.0)


def silent(request: Request) -> Reply | None:
    """Answer nothing until the client leaves."""
    request.client_left(30.0)
    return None


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A chat endpoint that each test scripts."""
    with FakeServer() as fake:
        yield fake


def played(server: FakeServer, answer: Handler | Reply, profile: Profile = ONE, seconds: float = 0.3) -> Figures:
    """Return what became of a load against such an answer."""
    server.routes[PATH] = answer

    async def run() -> Figures:
        generator = Generator(Endpoint(url=server.url, model="m"), profile, KnownAnswers())
        await generator.run(seconds)
        return generator.figures()

    return asyncio.run(run())


def test_whole_answers_are_counted_with_their_tokens(server: FakeServer) -> None:
    """Two tokens each, a time to the first, nothing failed and nothing open."""
    figures = played(server, Reply(TOKEN * 2 + DONE, headers=STREAM))
    assert set(figures.outcomes) == {"ok"}
    assert figures.tokens == 2 * figures.outcomes["ok"] > 0
    assert figures.ttft_p50_s is not None
    assert (figures.failed, figures.in_flight) == (0, 0)


@pytest.mark.parametrize(
    ("answer", "outcome", "example"),
    [
        (Reply({"error": "busy"}, 503), "refused", "HTTP 503"),
        (Reply({"error": "what"}, 400), "http error", "what"),
        (Reply(b'data: {"error":{"message":"gone"}}\n\n' + DONE, 503, STREAM), "refused", "gone"),
        (Reply(TOKEN + b'data: {"error":{"message":"gone"}}\n\n' + DONE, headers=STREAM), "error event", "gone"),
        (Reply(TOKEN, headers=STREAM), "broken stream", "DONE"),
        (Reply(TOKEN, headers=STREAM, content_length=4000), "broken stream", "DONE"),
        (lambda request: None, "broken stream", "before any answer"),
        (Reply(b"\xff\x00 not http at all", headers={"Content-Length": "x"}), "broken stream", None),
    ],
)
def test_each_failure_has_a_name_of_its_own(
    server: FakeServer, answer: Handler | Reply, outcome: str, example: str | None
) -> None:
    """Refused, failed, an error within a stream that ends well, a stream that breaks off, and what is no HTTP."""
    figures = played(server, answer)
    assert set(figures.outcomes) == {outcome}
    assert figures.failed == figures.requests
    assert example is None or example in figures.examples[0]


def test_nobody_listens() -> None:
    """Unreachable, and the load goes on until its end."""

    async def run() -> Figures:
        endpoint = Endpoint(url=f"http://127.0.0.1:{free_port()}", model="m")
        generator = Generator(endpoint, ONE, KnownAnswers())
        await generator.run(0.2)
        return generator.figures()

    assert set(asyncio.run(run()).outcomes) == {"unreachable"}


def test_a_client_that_is_out_of_patience_leaves(server: FakeServer) -> None:
    """A timeout is a failure, and the connection is closed."""
    figures = played(server, silent, msgspec.structs.replace(ONE, timeout_s=0.2))
    assert set(figures.outcomes) == {"timeout"}
    assert figures.failed > 0


def test_clients_that_leave_on_purpose_are_no_failures(server: FakeServer) -> None:
    """All of them leave, within the time they are given."""
    figures = played(server, silent, msgspec.structs.replace(ONE, abort_rate=1.0, abort_within_s=0.1))
    assert set(figures.outcomes) == {"left"}
    assert figures.failed == 0


def test_a_killed_agent_drops_every_connection_at_once(server: FakeServer) -> None:
    """All that were open; the server sees each of them go."""
    gone, all_open = threading.Semaphore(0), threading.Semaphore(0)

    def answer(request: Request) -> Reply | None:
        all_open.release()
        if request.client_left(30.0):
            gone.release()
        return None

    server.routes[PATH] = answer
    profile = msgspec.structs.replace(ONE, sessions=5)
    with BackgroundLoad(Endpoint(url=server.url, model="m"), profile, KnownAnswers()) as load:
        assert all(all_open.acquire(timeout=10) for _ in range(5))
        # The server may hear a request before the client's loop has noted that it is under way.
        eventually(lambda: load.figures().in_flight == 5)
        assert load.drop_all() == 5
        assert all(gone.acquire(timeout=10) for _ in range(5))
        eventually(lambda: load.figures().outcomes.get("killed") == 5)


def test_what_is_open_at_the_end_is_closed_and_counted(server: FakeServer) -> None:
    """Stopped early: unfinished, not failed; nothing stays open."""
    server.routes[PATH] = silent
    with BackgroundLoad(Endpoint(url=server.url, model="m"), ONE, KnownAnswers()) as load:
        eventually(lambda: load.figures().in_flight == 1)
        figures = load.stop()
    assert (figures.outcomes, figures.in_flight, figures.failed) == ({"unfinished": 1}, 0, 0)


def test_answers_are_checked(server: FakeServer) -> None:
    """Every canary is judged by what it must contain: `Paris` is right for one question, wrong for the others."""
    server.routes[PATH] = Reply(TOKEN + DONE, headers=STREAM)
    profile = msgspec.structs.replace(ONE, canary_rate=1.0)
    with BackgroundLoad(Endpoint(url=server.url, model="m"), profile, KnownAnswers()) as load:
        eventually(lambda: {"right", "wrong"} <= set(load.figures().canaries))
        figures = load.stop()
    assert figures.wrong == figures.canaries["wrong"]
    assert any(example.startswith("content wrong: ") for example in figures.examples)
