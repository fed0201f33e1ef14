"""The pictures of the README are what the commands print."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.unit.pdctl.drill.test_matrix import RUN


def test_pictures_show_the_screen_and_fetch_nothing(tmp_path: Path) -> None:
    """The cause and its instance, a row of the matrix with its counts; no font comes from the network."""
    results = tmp_path / "results.jsonl"
    results.write_bytes(msgspec.json.encode(RUN) + b"\n")
    argv = [sys.executable, "-m", "pictures", "--results", str(results), "--out", str(tmp_path)]
    subprocess.run(argv, check=True, cwd=Path(__file__).parents[1], stdout=subprocess.DEVNULL)
    drawn = {name: (tmp_path / f"{name}.svg").read_text() for name in ("diagnosis", "matrix")}
    shown = {name: html.unescape(re.sub(r"<[^>]*>", "", text)).replace("\xa0", " ") for name, text in drawn.items()}
    assert "Cause    PD0301 bootstrap-thread-dead on prefill (established)" in shown["diagnosis"]
    assert re.search(r"starved *PD0402 *PD0402 *1/1 *0 *1/1", shown["matrix"])
    assert "pdctl drill --all: 1 runs, m, no checkout" in shown["matrix"]
    assert "@font-face" not in drawn["diagnosis"] + drawn["matrix"]
