"""The flight recorder of real engines: during a hang, and after SIGKILL."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx

from pdctl.evidence.flight_format import read_flight
from tests.serving.rig import Pair, engine, free_port, running


def ways(records: Iterable[dict[str, Any]], room: int) -> list[str]:
    """Return the transitions that change a room, `STATE>STATE`."""
    words = [r["text"].split()[1] for r in records if r["kind"] == "room" and r["subject"] == room]
    return [word for word in words if word.partition(">")[0] != word.partition(">")[2]]


def test_the_recorder_tells_what_a_hung_and_a_killed_scheduler_did(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Rooms and steps stand in /flight while decode's scheduler is stopped, and in the file after its SIGKILL."""
    bootstrap, file = free_port(), tmp_path / "decode.flight"
    common = ("--dtype", "float32")
    prefill = engine("prefill", tiny_model_dir, tmp_path, "--bootstrap-port", str(bootstrap), *common)
    decode = engine(
        "decode", tiny_model_dir, tmp_path, "--peers", f"127.0.0.1:{bootstrap}", "--flight-file", str(file), *common
    )
    with running(prefill, decode):
        ids = list(range(10, 60))
        body = {"input_ids": ids, "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}, "bootstrap_room": 4711}
        sides = Pair(prefill, decode, bootstrap)
        sides.legs = lambda body, room=None: {**body, "bootstrap_host": "127.0.0.1", "bootstrap_port": bootstrap}  # type: ignore[method-assign]
        answers = sides.post("/generate", body)
        assert [answer.status_code for answer in answers] == [200, 200]
        scheduler = decode.get("/server_info")["scheduler_pid"]
        os.kill(scheduler, signal.SIGSTOP)
        seen = decode.get("/flight?last=100")
        assert seen["file"] == str(file)
        expected = ["absent>opened", "opened>offered", "wanting>reading", "reading>committing", "committing>landed"]
        found = ways(seen["records"], 4711)
        assert [way for way in expected if way in found] == expected
        steps = [record for record in seen["records"] if record["kind"] == "step_end"]
        assert [record["amount"] for record in steps] == [1, 1, 1]
        assert "paired>computed" in ways(prefill.get("/flight?last=500")["records"], 4711)
        ring = read_flight(httpx.get(decode.url + "/flight").content)
        assert (ring.instance, ring.pid) == (f"decode-{decode.url.rpartition(':')[2]}", scheduler)
        os.kill(scheduler, signal.SIGKILL)
        assert decode.child is not None
        assert decode.child.wait(10) != 0
    left = read_flight(file.read_bytes())
    assert (left.pid, left.torn) == (scheduler, 0)
    assert left.records[-1].number >= seen["records"][-1]["number"]
