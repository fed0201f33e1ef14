"""Each wedge that we can make for real, recovered and proven: the cause is named, the evidence kept.

`PDCTL_CHAOS_ROUNDS=10` is the long form; the short one leaves out what `tests/serving/test_recovery.py` does.
--force is given because the same cause again and again is what the breaker stops.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from pdctl.recover.ledger import FILE as LEDGER
from tests.serving.rig import until
from tests.serving.served import Served, served_by_pdctl

pytestmark = pytest.mark.slow
ROUNDS = int(os.environ.get("PDCTL_CHAOS_ROUNDS", "0"))


@pytest.fixture(scope="module")
def served(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """1 prefill, 1 decode and a router; the engines take failpoints."""
    with served_by_pdctl(tmp_path_factory.mktemp("wedges"), tiny_model_dir) as served:
        kept = served.home / "state" / "pdctl" / "default" / "deployment.toml"
        flags = ', "--enable-failpoints", "--served-name"'
        (served.home / "pd.toml").write_text(kept.read_text().replace(', "--served-name"', flags))
        served.pdctl("down", "--timeout", "0")
        up = served.pdctl("up")
        assert up.returncode == 0, up.stderr
        yield served


def stop_prefill(served: Served) -> None:
    served.signal("prefill-0", signal.SIGSTOP)


def stop_decode(served: Served) -> None:
    served.signal("decode-0", signal.SIGSTOP)


def kill_prefill(served: Served) -> None:
    served.signal("prefill-0", signal.SIGKILL)


def kill_decode(served: Served) -> None:
    served.signal("decode-0", signal.SIGKILL)


def url_of(served: Served, name: str) -> str:
    return str(next(row["url"] for row in served.json("status")["instances"] if row["name"] == name))


def switch(served: Served, name: str, failpoint: str, *, on: bool) -> None:
    """Switch a failpoint of an engine."""
    body = {"name": failpoint, "on": on}
    answer = httpx.post(url_of(served, name) + "/failpoints", json=body, timeout=10)
    assert answer.status_code == 200, answer.text


def kill_control_thread(served: Served) -> None:
    """The mass abort: prefill's control thread dies of the first ABORT, and stays dead."""
    switch(served, "prefill-0", "mass-abort", on=True)
    decode, health = urlsplit(url_of(served, "decode-0")), url_of(served, "prefill-0") + "/health"
    body = {
        "input_ids": list(range(10, 30)), "sampling_params": {"max_new_tokens": 4},
        "bootstrap_host": "127.0.0.1", "bootstrap_port": served.bootstrap_port, "bootstrap_room": 4711,
    }  # fmt: skip
    assert decode.hostname is not None
    assert decode.port is not None
    leg = HTTPConnection(decode.hostname, decode.port)
    # Decode's leg alone. Its client leaves once it is offered: were the pairing clocks to end it, the side whose clock
    # is read first would tell the other, and on a busy machine that is prefill as well.
    leg.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
    until(lambda: httpx.get(f"{decode.geturl()}/rooms", timeout=5).json()["rooms"], 9, "decode's leg offered")
    leg.close()
    until(lambda: httpx.get(health, timeout=5).json()["threads"]["transfer-control"] is False, 30, "the thread dead")


WEDGES: dict[str, tuple[Callable[[Served], None], str, str]] = {
    "stopped prefill": (stop_prefill, "prefill-0", "PD0305"),
    "stopped decode": (stop_decode, "decode-0", "PD0305"),
    "killed prefill": (kill_prefill, "prefill-0", "PD0101"),
    "killed decode": (kill_decode, "decode-0", "PD0101"),
    "mass abort": (kill_control_thread, "prefill-0", "PD0301"),
}
SHORT = ("stopped decode", "killed prefill", "mass abort")


@pytest.mark.parametrize("number", range(ROUNDS or 1))
@pytest.mark.parametrize("wedge", WEDGES if ROUNDS else SHORT)
def test_wedge_is_recovered_with_its_cause_named(served: Served, wedge: str, number: int) -> None:
    """The guilty one is a new process, the proof passed, and the kept evidence names the cause first."""
    make, guilty, code = WEDGES[wedge]
    until(served.is_well, 30, "well before")
    before = served.pids()
    make(served)
    done = served.json("snapshot-and-restart", "--yes", "--force", "--reason", "drill")
    assert (done["outcome"], done["detail"]) == ("recovered", "")
    assert served.pids()[guilty] not in (None, before[guilty])
    report = served.json("diagnose", done["kept"])
    firm = [cause["code"] for cause in report["causes"] if cause["confidence"] in ("established", "supported")]
    assert firm[:1] == [code]


@pytest.mark.parametrize(("answer", "kept"), [("s\n", ["snapshot"]), ("r\n", [])], ids=["snapshot", "restart now"])
def test_requests_that_starve_are_ended_and_nothing_is_restarted(served: Served, answer: str, kept: list[str]) -> None:
    """The mild step: all wait behind a room that can never fit; ended, new ones pass, and every process is the old one.

    The client is told; where the same cause comes back at once, the restart is next.
    """
    # What was tried a moment ago is not tried again.
    (served.home / "state" / "pdctl" / "default" / LEDGER).unlink(missing_ok=True)
    until(served.is_well, 30, "well before")
    before = served.pids()
    switch(served, "decode-0", "starved", on=True)
    loads = url_of(served, "decode-0") + "/v1/loads"
    body = {"text": "once upon a time " * 40, "sampling_params": {"max_new_tokens": 4}}
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(httpx.post, url_of(served, "router") + "/generate", json=body, timeout=120)
        until(lambda: httpx.get(loads, timeout=5).json()["queues"]["pages"] == 1, 20, "the first waits")
        done = served.typed(answer, "snapshot-and-restart")
        assert waiting.result().status_code >= 400
    switch(served, "decode-0", "starved", on=False)
    assert done.returncode == 0, done.stderr
    assert served.pids() == before
    steps = [entry["step"] for entry in served.json("history")[-1]["entries"]]
    assert steps == ["planned", *kept, "aborting", "verifying", "ended"]
