"""Discovery where a router knows its workers by other addresses than the operator."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

import pytest

from pdctl.deployment.discovery import discover
from pdctl.deployment.identify import Address
from pdctl.deployment.model import Role
from pdctl.deployment.places import Places
from pdctl.errors import UsageError
from tests.fakes.families import sglang, smg, vllm


def spelt(url: str, host: str) -> str:
    """Return the URL with another spelling of this host."""
    return url.replace("127.0.0.1", host)


@pytest.mark.parametrize(("named", "listed"), [("localhost", "127.0.0.1"), ("127.0.0.1", "localhost")])
def test_an_engine_under_two_addresses_is_one(named: str, listed: str) -> None:
    """It keeps the operator's address, has the role and the port that the router tells, and a note says so."""
    with vllm() as prefill, vllm() as decode:
        rows: list[dict[str, object]] = [
            {"url": spelt(prefill.url, listed) + "/", "worker_type": "prefill", "bootstrap_port": 8998},
            {"url": spelt(decode.url, listed), "worker_type": "decode"},
        ]
        with smg(rows) as router:
            found = discover([Address(spelt(url, named)) for url in (prefill.url, decode.url, router.url)])
    assert [(one.role, one.url, one.bootstrap_port) for one in found.deployment.instances] == [
        (Role.PREFILL, spelt(prefill.url, named), 8998),
        (Role.DECODE, spelt(decode.url, named), None),
        (Role.ROUTER, spelt(router.url, named), None),
    ]
    same = [note for note in found.notes if "named by the router, is" in note]
    assert same == [
        f"{spelt(url, listed)}, named by the router, is {spelt(url, named)}" for url in (prefill.url, decode.url)
    ]


def test_a_name_that_is_resolved_is_its_address() -> None:
    """The operator writes names, the router listed IP addresses; `127.1` stands for a name that can be asked."""
    with sglang("prefill") as prefill, sglang("decode") as decode:
        rows: list[dict[str, object]] = [{"url": spelt(item.url, "127.0.0.2")} for item in (prefill, decode)]
        with smg(rows) as router:
            urls = [spelt(url, "127.1") for url in (prefill.url, decode.url, router.url)]
            found = discover([Address(url) for url in urls], resolve=lambda name: {"127.0.0.2"})
    assert [one.url for one in found.deployment.instances] == urls


def test_two_spellings_of_the_operator_are_one_too_many() -> None:
    """As one address twice."""
    with sglang("prefill") as prefill, pytest.raises(UsageError, match="given twice"):
        discover([Address(prefill.url), Address(spelt(prefill.url, "localhost"))])


ADDRESSES = {"p1": ["10.0.0.1"], "both": ["10.0.0.2", "2001:db8::2"], "service": ["10.0.0.1", "10.0.0.2"]}


def resolve(name: str) -> Collection[str]:
    """Raise what resolvers raise for names that there are not, and that are none."""
    if name == "a..b":
        raise UnicodeError("label empty or too long")
    if name not in ADDRESSES:
        raise OSError("Name or service not known")
    return ADDRESSES[name]


@pytest.mark.parametrize(("one", "other", "is_same"), [
    ("http://p1:30000", "http://10.0.0.1:30000", True),
    ("http://p1:30000", "http://10.0.0.1:30001", False),
    ("http://both:30000", "http://[2001:DB8:0::2]:30000", True),
    ("http://both:30000", "http://10.0.0.2:30000", True),
    ("http://service:30000", "http://10.0.0.1:30000", False),
    ("http://service:30000", "http://service:30000/", True),
    ("http://p1", "http://10.0.0.1:80", True),
    ("https://p1", "http://10.0.0.1:80", False),
    ("http://0.0.0.0:1", "http://[::1]:1", True),
    ("http://unknown:1", "http://unknown:1", True),
    ("http://unknown:1", "http://other:1", False),
    ("http://a..b:1", "http://p1:1", False),
    ("http://[::1", "http://p1:1", False),
    ("http://[::1", "http://[::2", False),
])  # fmt: skip
def test_places(one: str, other: str, is_same: bool) -> None:
    """A name with an address of each kind is one host; one with two of a kind is a service, and none of its hosts."""
    places = Places((one, other), resolve)
    assert places.are_same(one, other) is is_same
    assert places.are_same(other, one) is is_same


def test_a_resolver_that_hangs_is_not_waited_for() -> None:
    """What is not known in time is not the same; nothing is raised."""
    release = threading.Event()

    def hang(name: str) -> Collection[str]:
        release.wait(60)
        return {"10.0.0.1"}

    started = time.monotonic()
    places = Places(("http://p1:1", "http://p2:1", "http://10.0.0.1:1"), hang, deadline_s=0.05)
    took_s = time.monotonic() - started
    assert not places.are_same("http://p1:1", "http://10.0.0.1:1")
    release.set()
    assert took_s < 30
