"""Wordings that the published releases have, as they print them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pdctl.diagnose.events import LogReader
from pdctl.dialects.signals import Event
from pdctl.evidence.records import LogLine

LINES = (
    # vLLM 0.11.1 to 0.13.0, then 0.14.0 and later
    ("NIXL transfer failed for request cmpl-7 with state ERR. Marking blocks as invalid.", Event.TRANSFER_FAILED),
    ("NIXL transfer exception for request cmpl-7. Marking blocks as invalid.", Event.TRANSFER_FAILED),
    ("Handshake with 4c1f-99 failed", Event.HANDSHAKE_FAILED),
    ("Handshake failed for request cmpl-7, marking blocks as invalid", Event.HANDSHAKE_FAILED),
    ("NIXL transfer failure: handshake_setup_failed | Context: {}", Event.HANDSHAKE_FAILED),
    # vLLM 0.10.2, and 0.11.0 and later
    ("No available shared memory broadcast block found in 60 second.", Event.WORKER_SILENT),
    ("No available shared memory broadcast block found in 60 seconds. This typically happens", Event.WORKER_SILENT),
    # vLLM 0.24.0 and later: the watchdog of a push; the class's name came later
    ("registration for request cmpl-7 timed out after 30.0s without a push completion", Event.TRANSFER_DEADLINE),
    (
        "NixlPushConnector: registration for request cmpl-7 timed out after 30.0s without a push completion",
        Event.TRANSFER_DEADLINE,
    ),
    # process managers
    ("Received signal 15, shutting down", Event.TERMINATED),
    ("received SIGTERM, shutting down", Event.TERMINATED),
    # vLLM 0.33.0
    ("vLLM server version 0.33.0, serving model smol", Event.STARTED),
    ("GPU + host KV cache size: 46,592 tokens, Maximum concurrency for 1,024 tokens", Event.KV_POOL_SIZE),
    ("torch.compile took 12.30 s in total", Event.COMPILING),
    # SGLang: all releases, 0.4.7 to 0.5.2, 0.5.12 and later
    ("ValueError: Request is disconnected from the client side (type 1). Abort request obj.rid='a'", Event.CLIENT_GONE),
    ("PD with different TP sizes per DP rank is not yet supported for non-MLA models", Event.MISMATCH),
    ("Request waiting timeout reached.", Event.WAITING_TIMEOUT),
    # Dynamo 1.0.0 and later
    ("Keep-alive stream unexpectedly ended", Event.KEEP_ALIVE_FAILED),
)


@pytest.mark.parametrize(("message", "event"), LINES, ids=[message[:32] for message, _ in LINES])
def test_what_a_release_prints_is_understood(message: str, event: Event) -> None:
    """Each line is an event of its class."""
    found, _ = LogReader(is_router=False).read([LogLine(1, datetime(2026, 11, 30, tzinfo=UTC), "", message, "log.txt")])
    assert event in [item.event for item in found]


def test_fifteen_of_something_is_no_signal() -> None:
    """`Received 15 requests` ends nobody."""
    line = LogLine(1, None, "", "Received 15 requests, none with SIGTERM handlers", "x")
    assert LogReader(is_router=False).read([line])[0] == []


def test_a_failed_transfer_tells_its_request_and_state() -> None:
    """As vLLM 0.12.0 words it."""
    line = LogLine(
        1, None, "", "NIXL transfer failed for request cmpl-7 with state ERR. Marking blocks as invalid.", "x"
    )
    found, _ = LogReader(is_router=False).read([line])
    groups = next(item.groups for item in found if item.event is Event.TRANSFER_FAILED)
    assert (groups["rid"], groups["kind"]) == ("cmpl-7", "ERR")
