"""Clients that gave up explain a complaint of now, not every look at a service that some have left since."""

from __future__ import annotations

import pytest

from tests.unit.pdctl.diagnose.incident import CAPTURED, HEALTHY_GET, instance, report
from tests.unit.pdctl.diagnose.test_own_engine import PAIR, scrape

ROUTER = instance("r", "router", "smg", host=3)
WORKS = {
    "p__http_toml": HEALTHY_GET,
    "d__http_toml": HEALTHY_GET,
    "d__metrics_prev_txt": scrape(),
    "d__metrics_txt": scrape().replace('requests_total{result="stop"} 3', 'requests_total{result="stop"} 9'),
}


def departures(count: int, minute: int) -> str:
    """Return the router's log of clients that left in that minute before half past two, as smg prints it."""
    line = (
        "2026-06-19 14:{}:0{} INFO smg::middleware: logging.rs:399: client closed the connection before the response\n"
    )
    return "".join(line.format(minute, second) for second in range(count))


@pytest.mark.parametrize(
    ("count", "minute", "verdict"), [(3, 29, "not_a_wedge"), (2, 29, "healthy"), (9, 20, "healthy")]
)
def test_clients_that_left(count: int, minute: int, verdict: str) -> None:
    """Three of the last minute do; two are too few; nine of ten minutes ago are past."""
    said = report(PAIR + ROUTER, r__log_txt=departures(count, minute), **WORKS)
    assert CAPTURED == "2026-06-19T14:30:00Z"
    assert said.verdict == verdict
    assert [cause.code for cause in said.firm] == (["PD0904"] if verdict == "not_a_wedge" else [])
