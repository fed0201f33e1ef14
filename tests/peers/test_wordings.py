"""What the check of the wheels reads: constant parts of an expression, constants of a module, and how both meet."""

from __future__ import annotations

from tests.peers.wheels import Strings, constants_of
from tests.peers.wordings import parts_of, wordings

MODULE = """
class Lost(Exception):
    'A docstring says nothing that is printed.'

class Answer:
    room_id: int = 0

def tell(peer, count, error):
    'Peer gone for good.'
    log.warning(f"Lost connection with {peer}, {count=} "
                f"requests affected")
    log.error("Releasing %d blocks of %s.", count, peer)
    return "failure: %s" % error, "handshake_failed"
"""


def strings(*constants: str, is_compiled: bool = False) -> Strings:
    """Return a release that says only this."""
    return Strings("\x1e" + "\x1e".join(constants) + "\x1e", is_compiled)


def test_a_wording_is_what_one_way_through_the_alternatives_needs() -> None:
    """Numbers and names are left out; `.*` begins a run that another constant may hold."""
    found = wordings(r"(?:Lost|Losing) connection with (?P<peer>\S+), count=\d+.*?with exception '")
    tail = ("with exception",)
    assert found == [(("Losing connection with", "count"), tail), (("Lost connection with", "count"), tail)]


def test_an_option_makes_two_ways_and_a_case_two_letters() -> None:
    """Every part is named once."""
    assert parts_of(r"(?:Scheduler )?[Ww]atchdog timeout") == [
        "Scheduler Watchdog timeout",
        "Scheduler watchdog timeout",
        "Watchdog timeout",
        "watchdog timeout",
    ]


def test_constants_have_holes_where_something_is_put_in_and_no_docstrings() -> None:
    """Neighbouring texts are one, and names of classes and fields count."""
    found = set(constants_of(MODULE))
    assert "Lost connection with \0, count=\0 requests affected" in found
    assert "Releasing \0 blocks of \0." in found
    assert {"Lost", "Answer", "room_id"} <= found
    assert not any("docstring" in text or "for good" in text for text in found)


def test_a_release_says_a_wording_in_one_constant_and_in_order() -> None:
    """Words that stand in two constants, or the other way round, are another message."""
    release = strings("Remote engine at \0 is new", "it changed from \0")
    assert not release.says((("Remote engine at", "changed from"),))
    assert release.says((("Remote engine at",), ("changed from",)))
    assert not strings("b then a part").says((("a part", "b then"),))
    assert strings("at changed", is_compiled=True).says((("changed", "at"),))


def test_a_wording_may_be_put_together() -> None:
    """A constant goes into another one, which is long enough to be known."""
    release = strings("NIXL transfer failure: \0", "handshake_failed", "KV \0", "checksum mismatch")
    assert release.has("NIXL transfer failure: handshake_failed")
    assert not release.has("NIXL transfer failure: handshake_lost")
    assert not release.has("KV checksum mismatch")


def test_a_name_is_a_whole_constant_but_in_compiled_code() -> None:
    """There names stand beside each other without a border."""
    assert not strings("vllm:requests_total_now").has_name("vllm:requests_total")
    assert strings("smg_requests_totalsmg_health", is_compiled=True).has_name("smg_requests_total")
