"""IPv6 addresses in what is shared: whatever form they stand in, the network's host is one and its port stays."""

from __future__ import annotations

import re
import tomllib

import pytest

from pdctl.collect import process_table
from pdctl.evidence.pseudonyms import Pseudonyms
from tests.unit.pdctl.evidence.test_redaction import TOPOLOGY, log_of, shared

FULL = "2001:0db8:0000:0007:0000:0000:0000:0005"
FORMS = ("2001:db8:0:7::5", "2001:DB8:0:7::5", "2001:db8:0:7:0:0:0:5", FULL)
SHOWN = Pseudonyms(b"0123456789abcdef").address(FULL)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("around", [
    "from {} now", "peer={},", "({})", "[{}]", "[{}]:51234", "http://[{}]:30000/v1", "tcp://[{}]:8000 up", "kv_{}_1",
    "{}: refused", "peer:[{}]", "host:{}", "{}%eth0 up", "http://[{}%25eth0]:80/", "{}/64",
])  # fmt: skip
def test_an_address_is_one_host_in_every_form(form: str, around: str) -> None:
    """Compressed, in capitals, of eight groups; bare, in brackets, with a zone, in a URL."""
    assert log_of(around.format(form)).endswith(around.format(SHOWN))


@pytest.mark.parametrize("around", ["{}:51234", "tcp://{}:51234 up", "accept {}:51234: reset"])
@pytest.mark.parametrize("form", FORMS)
def test_a_port_without_brackets_stays(form: str, around: str) -> None:
    """The whole is no address, so its last group is none of the address's."""
    assert log_of(around.format(form)).endswith(around.format(SHOWN))


def test_eight_groups_and_a_port_of_four_digits() -> None:
    """Nine groups are no address either."""
    assert log_of("2001:db8:0:7:0:0:0:5:8000").endswith(f"{SHOWN}:8000")


def test_what_could_be_an_address_or_a_port_says_neither() -> None:
    """`::5:8000` is an address as well; as one it goes."""
    assert "2001:db8:0:7" not in log_of("2001:db8:0:7::5:8000")


def test_two_hosts_of_one_network_stay_two_in_one() -> None:
    """Seven groups are equal before and afterwards; link-local stays link-local."""
    one, two, link = re.findall(r"<(\S+)>", log_of("<2001:db8:0:7::5> <2001:db8:0:7::6> <fe80::1>"))
    assert one.split(":")[:7] == two.split(":")[:7]
    assert one != two
    assert link.startswith("fe80:")
    assert link != "fe80::1"


@pytest.mark.parametrize("text", [
    "[::1]:30000", "::1", "[::]:30000", ":::30000", "at 12:30:01:123", "0000:3b:00.0", "std::de::fe", "a::b::c",
])  # fmt: skip
def test_what_is_no_hosts_address_stays(text: str) -> None:
    """Loopback, any, times, slots of devices, paths of Rust."""
    assert log_of(text).endswith(text)


def test_an_old_address_within_the_new_ones() -> None:
    """`::ffff:10.1.2.3` is the host 10.1.2.3."""
    old = Pseudonyms(b"0123456789abcdef").address("10.1.2.3")
    assert log_of("::ffff:10.1.2.3 and [::ffff:10.1.2.3]:80").endswith(f"::ffff:{old} and [::ffff:{old}]:80")


@pytest.mark.parametrize(("local", "shown"), [
    ("[2001:db8:0:7::5]:8000", f"[{SHOWN}]:8000"),
    ("2001:db8:0:7::5:8000", f"[{SHOWN}]:8000"),
    ("2001:db8:0:7::5:51234", f"[{SHOWN}]:51234"),
    ("::1:8000", "[::1]:8000"),
    (":::8000", "[::]:8000"),
    ("0.0.0.0:8000", "0.0.0.0:8000"),
    ("acme-prefill-paris:80", "prefill-x1:80"),
    ("[fe80::1%eth0]:80", f"[{Pseudonyms(b'0123456789abcdef').address('fe80::1')}%eth0]:80"),
])  # fmt: skip
def test_the_end_of_a_socket_always_has_a_port(local: str, shown: str) -> None:
    """Evidence of earlier versions has no brackets; there the last group is the port, whatever the rest is."""
    files = shared({"topology.toml": TOPOLOGY, "p/sockets.toml": f'[[socket]]\nlocal = "{local}"\n'.encode()})
    made = next(data for name, data in files.items() if name.endswith("sockets.toml"))
    assert tomllib.loads(made.decode()) == {"socket": [{"local": shown}]}


def test_the_table_of_processes_brackets_them() -> None:
    """As everybody writes an address with a port, so that the port can be told from the address."""
    assert process_table.joined("2001:db8::5", 51234) == "[2001:db8::5]:51234"
    assert process_table.joined("10.0.0.1", 80) == "10.0.0.1:80"
