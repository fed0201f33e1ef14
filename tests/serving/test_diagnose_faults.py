"""`pdctl diagnose` names the fault that a failpoint made in a real pair behind the real router."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.serving.rig import Pair, Process, pair, router, until
from tests.serving.test_diagnose import diagnosed
from tests.serving.test_failpoints import (
    FLAGS,
    is_dead,
    leave_while_held,
    offer_without_a_leg,
    passes,
    switch,
)


@pytest.fixture
def routed(tiny_model_dir: Path, tmp_path: Path) -> Iterator[tuple[Pair, Process]]:
    """A pair that may be broken, and smg in front of it."""
    with pair(tiny_model_dir, tmp_path, "--enable-failpoints", *FLAGS) as sides, router(sides, tmp_path) as smg:
        yield sides, smg


def first_cause(report: dict[str, Any]) -> tuple[str, str, str]:
    """Return code, instance and confidence of what the report names first."""
    cause = report["causes"][0]
    return cause["code"], cause["subject"]["instance"], cause["confidence"]


def is_router_blamed(report: dict[str, Any]) -> bool:
    """Say whether a step or a firm cause is about the router."""
    firm = [cause for cause in report["causes"] if cause["confidence"] in ("established", "supported")]
    return any(cause["code"].startswith("PD08") for cause in firm)


def test_a_dead_control_thread_of_prefill(routed: tuple[Pair, Process], tmp_path: Path) -> None:
    """mass-abort: PD0301 on prefill comes first, with the thread's name; the router is not blamed; exit 1."""
    sides = routed[0]
    switch(sides.prefill, "mass-abort")
    offer_without_a_leg(sides)
    until(is_dead(sides.prefill, "transfer-control"), 20, "the thread dead")
    code, report, _ = diagnosed(tmp_path, routed)
    assert first_cause(report) == ("PD0301", "prefill-0", "established")
    assert "transfer-control is dead" in report["causes"][0]["message"]
    assert not is_router_blamed(report)
    assert code == 1


def test_a_dead_control_thread_of_decode(routed: tuple[Pair, Process], tmp_path: Path) -> None:
    """status-thread: PD0303 on decode comes first, with the thread's name; exit 1."""
    sides = routed[0]
    switch(sides.decode, "status-thread")

    def is_over() -> bool:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda _: passes(sides, 100, 5.0), range(6)))
        return is_dead(sides.decode, "transfer-control")()

    # Rooms interleave when they happen to be at the same point.
    until(is_over, 60, "the thread dead")
    code, report, _ = diagnosed(tmp_path, routed)
    assert first_cause(report) == ("PD0303", "decode-0", "established")
    assert "transfer-control is dead" in report["causes"][0]["message"]
    assert not is_router_blamed(report)
    assert code == 1


def test_pages_that_are_never_freed(routed: tuple[Pair, Process], tmp_path: Path) -> None:
    """leak: PD0403 on prefill comes first, with the 25 pages, though the probe passes; exit 1."""
    sides = routed[0]
    switch(sides.prefill, "leak")
    leave_while_held(sides)
    until(lambda: not sides.prefill.get("/rooms")["rooms"], 5, "no room left")
    code, report, _ = diagnosed(tmp_path, routed)
    assert (first_cause(report), code) == (("PD0403", "prefill-0", "established"), 1)
    assert "25 pages" in report["causes"][0]["message"]


def test_a_room_that_keeps_all_others_waiting(routed: tuple[Pair, Process], tmp_path: Path) -> None:
    """starved: PD0402 on decode comes first; exit 1."""
    sides = routed[0]
    switch(sides.decode, "starved")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(passes, sides, 200, 25.0)
        until(lambda: sides.decode.get("/v1/loads")["queues"]["pages"] == 1, 5, "the first waits")
        code, report, _ = diagnosed(tmp_path, routed)
        assert not first.result()
    assert (first_cause(report), code) == (("PD0402", "decode-0", "established"), 1)
