"""A frontend's count of requests in flight stands only while somebody is connected who could have sent them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.diagnose.diagnosis import diagnose
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.report import Report
from pdctl.evidence.directory import evidence_of

INCIDENT = Path(__file__).parents[3] / "corpus" / "incidents" / "i100"
SOCKET = """
[[socket]]
pid = 1
state = "{state}"
local = "127.0.0.1:{port}"
remote = "127.0.0.1:40000"
"""


def files(more_sockets: str = "") -> dict[str, bytes]:
    """Return the incident as a router would show it that counts requests by worker alone, as smg before 1.10 does."""
    found = {path.relative_to(INCIDENT).as_posix(): path.read_bytes() for path in INCIDENT.glob("*/*")}
    found["topology.toml"] = (INCIDENT / "topology.toml").read_bytes()
    found["router/sockets.toml"] += more_sockets.encode()
    for name in ("router/metrics.txt", "router/metrics.prev.txt"):
        lines = found[name].splitlines(keepends=True)
        found[name] = b"".join(line for line in lines if b"smg_admission_inflight" not in line)
    return found


def firm(report: Report) -> list[str]:
    """Return the codes that stand."""
    return [cause.code for cause in report.firm]


def at_router(state: str) -> str:
    """Return a socket on the port that clients of the router use."""
    router = next(item for item in evidence_of(files()).instances if item.role == "router")
    return SOCKET.format(state=state, port=router.url.rpartition(":")[2])


@pytest.mark.parametrize("state", [None, "close_wait", "time_wait"])
def test_a_count_without_anybody_connected_is_left_over(state: str | None) -> None:
    """The dead thread is named; whose client has closed waits for nothing."""
    report = diagnose(evidence_of(files(at_router(state) if state else "")))
    assert "PD0301" in firm(report)
    assert "PD0805" not in firm(report)
    assert not any(row.symptom == "orphaned" for row in report.symptoms)


def test_a_count_with_somebody_connected_counts() -> None:
    """Then the router does wait for requests that no worker has."""
    report = diagnose(evidence_of(files(at_router("established"))))
    assert any(row.symptom == "orphaned" for row in report.symptoms)


def test_nothing_follows_from_sockets_that_are_not_known() -> None:
    """They could not be read, or there are more than are kept."""
    unread = files()
    unread["router/sockets.toml"] = b""
    many = files("".join(SOCKET.format(state="established", port=1) for _ in range(LIMITS.most_sockets)))
    for case in (unread, many):
        assert any(row.symptom == "orphaned" for row in diagnose(evidence_of(case)).symptoms)
