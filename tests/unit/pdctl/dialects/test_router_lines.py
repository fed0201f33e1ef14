"""Lines that smg 1.13.0 printed, with one decode killed, and what they say."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pdctl.diagnose.events import LogReader
from pdctl.dialects.signals import Event
from pdctl.evidence.loglines import parse_log

SPAN = 'http_request{method=POST path=/v1/chat/completions version=HTTP/1.1 module="smg" request_id="chatcmpl-F5k0"'


def event_of(text: str) -> tuple[list[Event], dict[str, str]]:
    """Return the events of one line and the named parts of the last."""
    lines, _ = parse_log(
        f"2026-11-30 03:10:17  {text}\n".encode(), "router/log.txt", datetime(2026, 11, 30, tzinfo=UTC)
    )
    found, _ = LogReader(is_router=True).read(lines)
    return [item.event for item in found], found[-1].groups if found else {}


def test_an_answer_tells_method_path_and_status() -> None:
    """The span of the request stands before the message, and the path of the source file between them."""
    line = (
        f'ERROR {SPAN} status_code=500 latency=85995 otel.status_code="ERROR"}}: smg::response: '
        "model_gateway/src/middleware/logging.rs:217: request failed with server error"
    )
    assert event_of(line) == (
        [Event.ACCESS],
        {"method": "POST", "path": "/v1/chat/completions", "status": "500"},
    )


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            f"INFO {SPAN}}}: smg::worker::circuit_breaker: model_gateway/src/worker/circuit_breaker.rs:293: "
            'Circuit breaker state transition: closed -> open worker_url=http://127.0.0.1:31872 from="closed"',
            Event.ROUTER_UNHEALTHY,
        ),
        (
            "INFO smg::worker::manager: model_gateway/src/worker/manager.rs:693: Worker status transition "
            "worker_url=http://127.0.0.1:31872 old=Ready new=NotReady",
            Event.ROUTER_UNHEALTHY,
        ),
        (
            "WARN smg::worker::manager: model_gateway/src/worker/manager.rs:650: Health probe failed "
            "worker_url=http://127.0.0.1:31872 error=Health check failed for worker http://127.0.0.1:31872: "
            "health probe returned non-success",
            Event.ROUTER_UNHEALTHY,
        ),
        (
            f"WARN {SPAN}}}: smg::routers::common::placement: model_gateway/src/routers/common/placement.rs:643: "
            'No available workers for model function="PDRouter::execute_dual_dispatch_attempt"',
            Event.ROUTER_NO_WORKER,
        ),
    ],
)
def test_what_it_says_of_a_worker_that_fails(line: str, event: Event) -> None:
    """Breaker, status, probe and placement each have a line."""
    assert event_of(line)[0] == [event]


def test_a_worker_that_comes_back_is_no_failure() -> None:
    """The same lines in the other direction."""
    for text in (
        "INFO smg::worker::manager: model_gateway/src/worker/manager.rs:693: Worker status transition "
        "worker_url=http://127.0.0.1:31872 old=NotReady new=Ready",
        "INFO smg::worker::circuit_breaker: model_gateway/src/worker/circuit_breaker.rs:195: Circuit breaker state "
        "transition: open -> half_open",
    ):
        assert event_of(text)[0] == []


def finished(status: int, latency: str) -> str:
    """Return what smg prints of an answer."""
    span = f"{SPAN} status_code={status} latency={latency}ms}}"
    return f"INFO {span}: smg::response: logging.rs:217: finished processing request"


@pytest.mark.parametrize(
    ("line", "left"),
    [
        (finished(499, "36.25"), True),
        (finished(200, "1499.05"), False),
        (finished(200, "499"), False),
        ('198.51.100.9 - - "POST /v1/completions HTTP/1.1" 499 0 "-"', True),
        ('198.51.100.9 - - "POST /v1/completions HTTP/1.1" 200 499 "-"', False),
        ('{"path":"/v1/completions","response_code":"499","duration":12}', True),
        ("added worker prefill=3 decode=499", False),
    ],
)
def test_a_client_that_left_is_told_by_the_status(line: str, left: bool) -> None:
    """A 499 elsewhere in a line is a duration or a size."""
    assert (Event.CLIENT_GONE in event_of(line)[0]) == left


def test_lines_that_differ_in_a_number_that_tells_are_told_apart() -> None:
    """Whichever comes first, a status of 200 and one of 499 are two kinds of lines."""
    for statuses in ((200, 499, 200, 499), (499, 200, 499)):
        text = "".join(f"2026-11-30 03:10:17  {finished(status, '36.25')}\n" for status in statuses)
        lines, _ = parse_log(text.encode(), "router/log.txt", datetime(2026, 11, 30, tzinfo=UTC))
        found, _ = LogReader(is_router=True).read(lines)
        assert [item.event for item in found].count(Event.CLIENT_GONE) == statuses.count(499)
