"""What operators reported of four wedges, on real engines that suffer them: /health is 200, and still this shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from pdctl.deployment.files import save
from pdctl.dialects.pdctl_signals import FAILED_ROOMS, QUEUE_LENGTH, THREAD_ALIVE, TRANSFERS
from pdctl.evidence.exposition import parse_exposition
from pdctl.evidence.records import Sample
from tests.cli.pdctl_process import run
from tests.serving.rig import Pair, Process, pair, router, until
from tests.serving.test_failpoints import FLAGS, body, leave, offer_without_a_leg, passes, switch
from tests.serving.test_probe import deployment

LYING = ("--enable-failpoints", "--legacy-health", *FLAGS)
ENDING = "ending"
"""A phase of ours that no engine of the field counts: its client is gone, and its pages are still awaited."""
KILLED_AT_ONCE = 13
KILLED_AFTER_S = [0.02 * 1.4**number for number in range(KILLED_AT_ONCE)]
"""To 1.1 s: some of them while their chunks are on the way, however fast the machine is."""
LOST = 6


@pytest.fixture
def sides(tiny_model_dir: Path, tmp_path: Path) -> Iterator[Pair]:
    """A pair that may be broken, and says 200 all the same; it has served a request."""
    with pair(tiny_model_dir, tmp_path, *LYING) as both:
        assert passes(both)
        yield both


def samples(process: Process, series: str) -> tuple[Sample, ...]:
    """Return the samples of a series."""
    exposition, _ = parse_exposition(httpx.get(process.url + "/metrics").content, process.name)
    assert exposition is not None
    return exposition.series.get(series, ())


def is_control_dead(process: Process) -> bool:
    """Say whether the metrics show that the control thread is down."""
    return any(row.labels["thread"] == "transfer-control" and row.value == 0 for row in samples(process, THREAD_ALIVE))


def queued(process: Process) -> float:
    """Return how many requests wait or run in any queue that the field's engines have."""
    return sum(row.value for row in samples(process, QUEUE_LENGTH) if row.labels["queue"] != ENDING)


def failed(process: Process) -> float:
    """Return how many transfers failed that nobody asked to end."""
    return sum(row.value for row in samples(process, TRANSFERS) if row.labels["result"] in FAILED_ROOMS)


def healths(sides: Pair) -> list[int]:
    """Return what both sides answer on /health."""
    return [httpx.get(side.url + "/health").status_code for side in (sides.prefill, sides.decode)]


def test_all_queues_are_empty_and_a_fresh_request_hangs(sides: Pair) -> None:
    """An agent with 13 requests was killed a while ago: nothing waits, nothing runs, and nothing gets through."""
    switch(sides.prefill, "mass-abort")
    with ThreadPoolExecutor(KILLED_AT_ONCE) as agent:
        list(agent.map(lambda after_s: leave(sides, 900, after_s), KILLED_AFTER_S))
    until(lambda: is_control_dead(sides.prefill), 20, "the thread dead")
    until(lambda: queued(sides.prefill) == queued(sides.decode) == 0, 30, "all queues empty")
    assert healths(sides) == [200, 200]
    assert not passes(sides)


def test_the_transfer_queue_stands_at_the_number_in_flight(sides: Pair) -> None:
    """Prefill runs nothing and calls itself well; on decode all that came since wait for their KV."""
    switch(sides.prefill, "mass-abort")
    offer_without_a_leg(sides)
    until(lambda: is_control_dead(sides.prefill), 20, "the thread dead")
    with ThreadPoolExecutor(3) as pool:
        hanging = [pool.submit(passes, sides, 40, 8.0) for _ in range(3)]
        until(lambda: sides.decode.get("/v1/loads")["queues"]["room"] == 3, 5, "three in flight")
        assert healths(sides) == [200, 200]
        assert sides.prefill.get("/health")["problems"] == []
        assert sides.prefill.get("/v1/loads")["running"] == 0
        assert sides.decode.get("/v1/loads")["running"] == 0
        assert not any(one.result() for one in hanging)


def test_failed_transfers_are_many_on_the_old_side_and_few_on_the_new(sides: Pair) -> None:
    """Decode was restarted alone under load: it counts the one that hung since, prefill all that it lost as well."""
    switch(sides.prefill, "decode-restart")
    switch(sides.decode, "starved")
    requests = [sides.legs(body(40)) for _ in range(LOST)]
    with ThreadPoolExecutor(2 * LOST) as pool:
        for request in requests:
            pool.submit(sides.decode.post, "/generate", request)
        lost = [pool.submit(sides.prefill.post, "/generate", request) for request in requests]
        until(lambda: sides.prefill.get("/v1/loads")["queues"]["held"] == LOST, 20, "all held for decode")
        sides.decode.kill()
        assert all(one.result().status_code >= 500 for one in lost)
    sides.decode.start().wait_ready()
    assert not passes(sides)
    until(lambda: failed(sides.decode) == 1, 20, "the one that hung has failed")
    assert failed(sides.prefill) >= LOST
    assert healths(sides) == [200, 200]


def test_one_rank_is_in_a_collective_and_the_other_idle(tiny_model_dir: Path, tmp_path: Path) -> None:
    """After an abort decode's ranks stand apart in both dumps: one in all_reduce below its step, one in no step."""
    with pair(tiny_model_dir, tmp_path, *LYING, decode_flags=("--tp", "2")) as sides, router(sides, tmp_path) as smg:
        switch(sides.decode, "desync")
        request = {"model": "test", "prompt": "hello", "max_tokens": 900, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", smg.url + "/v1/completions", json=request, timeout=60) as answer:
            next(answer.iter_raw())
        until(lambda: not sides.decode.get("/rooms")["rooms"], 20, "decode has heard that the client left")
        assert not passes(sides)
        assert healths(sides) == [200, 200]
        save(deployment((sides, smg)), tmp_path / "live.toml")
        ran = run(tmp_path, "diagnose", "--file", str(tmp_path / "live.toml"), "-o", "json")
    alone = [row for row in json.loads(ran.stdout)["rank_stacks"] if len(row["ranks"]) == 1]
    ranks = [row for row in alone if row["instance"] == "decode-0"]
    waits = [row for row in ranks if "all_reduce" in row["path"]]
    idle = [row for row in ranks if "compute_plan" not in row["path"]]
    assert len(waits) == len(idle) == 1
    assert waits[0]["ranks"] != idle[0]["ranks"]
