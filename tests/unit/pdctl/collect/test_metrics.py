"""Scrapes of good and bad endpoints, over real sockets."""

from __future__ import annotations

import asyncio
import resource
import socket

from pdctl.collect import metrics
from pdctl.collect.context import Context, Deadline
from pdctl.collect.fetch import Fetcher
from pdctl.collect.metrics import Sieve
from pdctl.collect.records import Status, Taken
from pdctl.collect.target import Target
from pdctl.deployment.model import Instance, Role
from tests.fakes.bad_http import BadServer, Behaviour, drip_headers, endless, half, hang, reset, whole

BODY = b'# HELP a b\n# TYPE a counter\na{x="1"} 2\nlat_bucket{le="+Inf"} 7\nlat_sum 3\n'


def scrape(behaviour: Behaviour, *, timeout_s: float = 1.0, is_fleet: bool = False) -> Taken:
    with BadServer({"/metrics": behaviour}) as server:
        return take(server.url, timeout_s=timeout_s, is_fleet=is_fleet)


def take(url: str, *, timeout_s: float = 1.0, is_fleet: bool = False) -> Taken:
    async def once() -> Taken:
        fetcher = Fetcher()
        context = Context(fetcher=fetcher, deadline=Deadline(60), is_fleet=is_fleet, get_timeout_s=timeout_s)
        instance = Instance(name="i", role=Role.PREFILL, dialect="sglang", url=url)
        return (await metrics.take(Target(instance=instance), context, "metrics.txt"))[0]

    return asyncio.run(once())


def test_a_scrape_is_kept_as_it_came() -> None:
    """Comments, buckets and order are kept byte by byte."""
    taken = scrape(whole(BODY))
    assert (taken.status, taken.content, taken.truncated) == (Status.OK, BODY, False)


def test_of_a_fleet_only_what_is_read_is_kept() -> None:
    """Comments and histogram buckets are dropped while the body comes in."""
    assert scrape(whole(BODY), is_fleet=True).content == b'a{x="1"} 2\nlat_sum 3\n'


def test_an_endless_scrape_ends_in_bounded_memory() -> None:
    """An endpoint that never stops gives its first part, marked as cut, and costs a few MB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    taken = scrape(endless(b'sglang:x_bucket{le="0.1"} 1\n'), timeout_s=30)
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert taken.status is Status.OK
    assert taken.truncated is True
    assert taken.content is not None
    assert taken.content.startswith(b'sglang:x_bucket{le="0.1"} 1\n')
    assert len(taken.content) <= metrics.KEPT_BYTES + (1 << 20)
    assert grown_mb < 60


def test_a_line_without_end_is_passed_over() -> None:
    """200 MB without a newline are no metrics, and are not held either."""
    taken = scrape(endless(b"x" * 65536), timeout_s=30)
    assert taken.status is Status.FAILED
    assert taken.content is None


def test_html_is_no_scrape() -> None:
    """A login page behind /metrics is a failure that says so."""
    taken = scrape(whole(b"\n<!DOCTYPE html><html>login</html>"))
    assert taken.status is Status.FAILED
    assert "HTML" in (taken.error or "")


def test_a_hung_endpoint_is_a_timeout() -> None:
    """No answer within the time allowed is told apart from a refusal."""
    assert scrape(hang, timeout_s=0.3).status is Status.TIMEOUT


def test_headers_that_drip_are_a_timeout() -> None:
    """A server that never stops sending headers cannot hold the collection."""
    taken = scrape(drip_headers, timeout_s=0.5)
    assert taken.status is Status.TIMEOUT
    assert (taken.took_ms or 0) < 5000


def test_a_reset_and_a_refusal_are_failures_with_their_own_words() -> None:
    """Who reads the record can tell a broken connection from a closed port."""
    assert "reset" in (scrape(reset).error or "")
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert "refused" in (take(url).error or "")


def test_half_a_scrape_is_kept_and_marked() -> None:
    """What came before the connection broke is evidence, but nothing may be concluded from what it lacks."""
    taken = scrape(half(BODY))
    assert (taken.content, taken.truncated, taken.status) == (BODY, True, Status.OK)


def test_no_such_endpoint_and_a_missing_key_say_what_to_do() -> None:
    """404 means metrics are off; 401 asks for a key."""
    absent, denied = scrape(whole(b"", b"404 Not Found")), scrape(whole(b"", b"401 Unauthorized"))
    assert (absent.status, denied.status) == (Status.ABSENT, Status.DENIED)
    assert "--enable-metrics" in (absent.error or "")
    assert "api_key_file" in (denied.error or "")


def test_lines_may_come_in_any_pieces() -> None:
    """The sieve's result does not depend on how the network cut the body."""
    for size in (1, 3, 7, len(BODY)):
        sieve = Sieve(0)
        for at in range(0, len(BODY), size):
            sieve.feed(BODY[at : at + size])
        assert sieve.finish() == b'a{x="1"} 2\nlat_sum 3\n'
