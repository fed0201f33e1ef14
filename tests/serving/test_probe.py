"""`pdctl probe` and `attach` against a real pair and the real router."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pdctl.collect.http import InstanceClient
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.probe import Output, Stage, Verdict, prove
from pdctl.probe.scoring import score, token_ids
from tests.cli.pdctl_process import run
from tests.serving.rig import Pair, Process, instances, pair, router, until
from tests.tiny_model import HEAD_DIM, KV_HEADS, LAYERS

PAGE_BYTES = 16 * LAYERS * 2 * KV_HEADS * HEAD_DIM * 8
"""16 tokens, keys and values, float64."""


@pytest.fixture(scope="module")
def routed(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pair, Process]]:
    """A pair with the tiny model and smg in front of it."""
    folder = tmp_path_factory.mktemp("probed")
    with pair(tiny_model_dir, folder, "--dtype", "float64") as sides, router(sides, folder) as smg:
        yield sides, smg


def deployment(routed: tuple[Pair, Process]) -> Deployment:
    sides, smg = routed
    smg_itself = Instance(name="router", role=Role.ROUTER, dialect="smg", url=smg.url)
    return Deployment(name="test", model="test", instances=(*instances(sides), smg_itself))


@pytest.mark.parametrize("direct", [False, True])
def test_real_request_is_proven(routed: tuple[Pair, Process], tmp_path: Path, direct: bool) -> None:
    """Through the router and without it: right tokens, all pages of the prompt, every stage in order of time."""
    report = prove(deployment(routed), direct=direct, prompt_tokens=700, timeout_s=30, lock_folder=tmp_path)
    [result] = report.results
    assert (result.verdict, result.output) == (Verdict.PROVEN, Output.SAME), result.why
    assert result.prompt_tokens is not None
    assert 600 <= result.prompt_tokens <= 800
    assert result.kv_bytes == math.ceil(result.prompt_tokens / 16) * PAGE_BYTES
    first = [] if direct else [Stage.ROUTER_ACCEPTED]
    assert [item.stage for item in result.stages] == [
        *first,
        Stage.PREFILL_QUEUED,
        Stage.PAIRED,
        Stage.PREFILL_COMPUTED,
        Stage.KV_LANDED,
        Stage.FIRST_TOKEN,
        Stage.LAST_TOKEN,
    ]
    assert result.stages[0].at_ms >= 0


def test_attach_to_the_router_then_probe(routed: tuple[Pair, Process], tmp_path: Path) -> None:
    """One URL is enough for a deployment file, and that file for a proof."""
    _, smg = routed
    attached = run(tmp_path, "attach", smg.url)
    assert attached.returncode == 0, attached.stderr
    probed = run(tmp_path, "probe", "-o", "json")
    assert probed.returncode == 0, probed.stdout + probed.stderr
    [result] = json.loads(probed.stdout)["results"]
    assert result["kv_bytes"] > 0
    assert result["pair"] == ["prefill-0", "decode-0"]


def test_wrong_tokens_are_garbled(routed: tuple[Pair, Process]) -> None:
    """The real engine's scores tell its own choice from a token that it would not have chosen."""
    sides, _ = routed
    with InstanceClient(sides.prefill.url) as client:
        prompt = token_ids(client, "hello world")
        assert prompt is not None
        _, decoded = sides.post("/generate", {"input_ids": prompt, "sampling_params": {"temperature": 0}})
        right = decoded.json()["output_ids"]
        wrong = [*right[:3], (right[3] + 1) % 200 + 3, *right[4:]]
        assert score(client, prompt, right, "pdctl-probe-1", 20).output is Output.SAME
        assert score(client, prompt, wrong, "pdctl-probe-2", 20).output is Output.GARBLED


def test_frozen_decode_is_named_and_nothing_stays_behind(routed: tuple[Pair, Process], tmp_path: Path) -> None:
    """With decode's scheduler stopped the report says how far prefill came; afterwards no room is left."""
    sides, _ = routed
    children = psutil.Process(sides.decode.pid).children(recursive=True)
    [scheduler] = [child for child in children if "engine.scheduler" in child.cmdline()]
    os.kill(scheduler.pid, signal.SIGSTOP)
    try:
        report = prove(deployment(routed), direct=True, timeout_s=2, lock_folder=tmp_path)
    finally:
        os.kill(scheduler.pid, signal.SIGCONT)
    [result] = report.results
    assert (result.verdict, result.error, result.held_by) == (Verdict.NOT_PROVEN, "timeout", ())
    assert result.stage is Stage.PREFILL_QUEUED
    assert [line.split(" for ")[0] for line in result.live[:1]] == ["prefill-0: room announced"]
    assert "decode-0: does not tell its rooms" in result.live[1]
    until(sides.is_idle, 20, "no room and no page in use on either side")
    again = prove(deployment(routed), direct=True, timeout_s=30, lock_folder=tmp_path)
    assert again.verdict is Verdict.PROVEN, again.results[0].why
