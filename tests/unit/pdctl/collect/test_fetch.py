"""GETs of many instances: how long one is waited for, and those that go through another host."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from pdctl.collect.fetch import Fetcher
from pdctl.collect.http import Answer, Outcome
from pdctl.deployment.model import Instance, Role
from pdctl.hosts.hosts import Hosts
from tests.fakes.bad_http import BadServer, endless, not_found, whole
from tests.ports import free_port
from tests.waiting import eventually

LONG_S = 100.0


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """Hosts that are closed at the end."""
    with Hosts() as hosts:
        yield hosts


def instance(url: str, host: str = "local", name: str = "i") -> Instance:
    return Instance(name=name, role=Role.DECODE, dialect="pdctl", url=url, host=host)


def get(fetcher: Fetcher, one: Instance, path: str = "/x", deadline_s: float = 10.0) -> Answer:
    return asyncio.run(fetcher.get(one, path, deadline_s=deadline_s))


def test_one_that_is_hurried_is_not_waited_for_and_others_are() -> None:
    """What it owes ends at the new limit, and so does what it is asked later, until that is taken back."""

    async def asked() -> tuple[Answer, Answer, bool]:
        fetcher = Fetcher()
        slow, other = instance(server.url), instance(server.url, name="other")
        owed = asyncio.ensure_future(fetcher.get(slow, "/x", deadline_s=LONG_S))
        others = asyncio.ensure_future(fetcher.get(other, "/x", deadline_s=LONG_S))
        await asyncio.sleep(0)
        fetcher.hurry("i", 0.05)
        first = await owed
        second = await fetcher.get(slow, "/x", deadline_s=LONG_S)
        fetcher.hurry("i", None)
        again = asyncio.ensure_future(fetcher.get(slow, "/x", deadline_s=LONG_S))
        done, waiting = await asyncio.wait((others, again), timeout=0.3)
        for task in waiting:
            task.cancel()
        return first, second, not done

    with BadServer({}) as server:
        first, second, are_others_waited_for = asyncio.run(asked())
    assert (first.outcome, second.outcome) == (Outcome.TIMEOUT, Outcome.TIMEOUT)
    assert are_others_waited_for


def test_hurrying_never_makes_a_wait_longer() -> None:
    """The caller's own deadline stays."""

    async def asked() -> Answer:
        fetcher = Fetcher()
        owed = asyncio.ensure_future(fetcher.get(instance(server.url), "/x", deadline_s=0.05))
        await asyncio.sleep(0)
        fetcher.hurry("i", LONG_S)
        return await owed

    with BadServer({}) as server:
        assert asyncio.run(asyncio.wait_for(asked(), 20)).outcome is Outcome.TIMEOUT


def test_loopback_of_another_host_is_asked_through_it(hosts: Hosts) -> None:
    """Status, body and headers come as from here; the host is what decides whether it can be asked."""
    with BadServer({"/x": whole(b"hello \x00\xff")}, not_found) as server:
        there = get(Fetcher(hosts), instance(server.url, "exec:env"))
        missing = get(Fetcher(hosts), instance(server.url, "exec:env"), "/other")
        lost = get(Fetcher(hosts), instance(server.url, "exec:false #"))
        here = get(Fetcher(hosts), instance(server.url, "local"))
    assert (there.outcome, there.status, there.body) == (Outcome.ANSWERED, 200, b"hello \x00\xff")
    assert (there.body, there.headers) == (here.body, here.headers)
    assert (missing.outcome, missing.status) == (Outcome.ANSWERED, 404)
    assert lost.outcome is Outcome.UNREACHABLE
    assert "exec:false # cannot be reached" in (lost.error or "")


def test_an_address_that_is_no_loopback_is_asked_from_here(hosts: Hosts) -> None:
    """Whatever becomes of its host."""
    with BadServer({"/x": whole(b"hello")}) as server:
        url = server.url.replace("127.0.0.1", "0.0.0.0")
        assert get(Fetcher(hosts), instance(url, "exec:false #")).body == b"hello"


def test_what_goes_wrong_there_is_told_apart_as_here(hosts: Hosts) -> None:
    """Nobody listens; silence; a flood; what is no HTTP. The session goes on."""
    fetcher = Fetcher(hosts)
    nobody = get(fetcher, instance(f"http://127.0.0.1:{free_port()}", "exec:env"))
    with BadServer({"/flood": endless(b"x" * 1000)}) as server:
        silent = get(fetcher, instance(server.url, "exec:env"), deadline_s=0.5)
        flood = get(fetcher, instance(server.url, "exec:env"), "/flood")
    with BadServer({"/x": lambda connection, stop: connection.sendall(b"\xff\x00\r\n\r\n")}) as server:
        babble = get(fetcher, instance(server.url, "exec:env"))
    tls = get(fetcher, instance("https://127.0.0.1:1", "exec:env"))
    assert [answer.outcome for answer in (nobody, silent, flood, tls)] == [
        Outcome.REFUSED,
        Outcome.TIMEOUT,
        Outcome.TOO_LARGE,
        Outcome.UNREACHABLE,
    ]
    assert babble.outcome in (Outcome.GARBLED, Outcome.RESET)
    assert "no TLS is spoken through exec:env" in (tls.error or "")


def test_what_is_not_waited_for_is_ended_there(hosts: Hosts) -> None:
    """The server sees its client leave: nothing is left open on that host."""
    left = []

    def watched(connection, stop) -> None:  # type: ignore[no-untyped-def]
        connection.settimeout(20)
        left.append(connection.recv(1))

    with BadServer({"/first": whole(b"")}, watched) as server:
        assert get(Fetcher(hosts), instance(server.url, "exec:env"), "/first").ok, "the session is open"
        assert get(Fetcher(hosts), instance(server.url, "exec:env"), deadline_s=1.0).outcome is Outcome.TIMEOUT
        assert eventually(lambda: left) == [b""]
