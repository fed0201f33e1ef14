"""`pdctl load` on real engines behind the real router: damage shows in the answers though every status is 200."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.served import Served, port_base

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """1 prefill, 1 decode and a router that may be broken."""
    served = Served(tmp_path_factory.mktemp("loaded"))
    arguments = ("--model", str(tiny_model_dir), "--port-base", str(port_base()), "--for-drills")
    try:
        up = served.pdctl("up", *arguments)
        assert up.returncode == 0, up.stderr
        yield served
    finally:
        served.pdctl("down", "--timeout", "0")


def loaded(served: Served, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Return exit code and figures of a short load."""
    done = served.pdctl("load", "-n", "3", "--duration", "5s", "--canary-rate", "0.5", "-o", "json", *arguments)
    assert done.stdout, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, figures


def test_answers_of_a_sound_pair_are_right(served: Served) -> None:
    """Every canary is scored, none is wrong, every request succeeds; nothing needs to be typed for such a target."""
    code, figures = loaded(served)
    assert set(figures["outcomes"]) <= {"ok", "unfinished"}, figures
    assert set(figures["canaries"]) == {"right"}, figures
    # A random model writes the markup of tool calls by chance.
    assert code == int(figures["markup_faults"] > 0), figures


def test_damaged_pages_show_as_wrong_answers(served: Served) -> None:
    """Status 200 throughout, and exit 1: pages that land with wrong bytes are found by content alone."""
    urls = {row["name"]: row["url"] for row in served.json("status")["instances"]}
    switch = {"name": "corrupt-page", "on": True}
    assert httpx.post(urls["decode-0"] + "/failpoints", json=switch, timeout=10).status_code == 200
    code, figures = loaded(served)
    assert figures["canaries"].get("wrong", 0) > 0, figures
    assert figures["failed"] == 0, figures
    assert code == 1
