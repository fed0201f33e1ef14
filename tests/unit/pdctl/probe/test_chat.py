"""Probing other families: a chat question, over the router or to both legs of a pair."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.diagnose.diagnosis import diagnose
from pdctl.diagnose.verdict import Verdict as Whole
from pdctl.errors import CannotTell
from pdctl.evidence.directory import evidence_of
from pdctl.probe import Output, Stage, Verdict, prove
from pdctl.probe.chat import stream_text
from pdctl.probe.evidence import PROBE_FILE, probe_document
from pdctl.probe.report import ProbeReport
from tests.fakes.http_server import FakeServer, Handler, Reply, Request

CHAT = "/v1/chat/completions"


def stream(*pieces: str, done: bool = True) -> bytes:
    """Return a stream of chat chunks as the engines write it."""
    chunks = [{"choices": [{"index": 0, "delta": {"role": "assistant"}}]}]
    chunks += [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([": hb\n\n", *lines, "data: [DONE]\n\n" if done else ""]).encode()


PARIS = Reply(stream("The capital is Par", "is."), headers={"Content-Type": "text/event-stream"})


def through_router(folder: Path, answer: Handler | Reply, **options: object) -> tuple[ProbeReport, list[Request]]:
    """Probe a router with that answer in front of two SGLang engines that say nothing."""
    with FakeServer({CHAT: answer}) as router:
        common = {"dialect": "sglang", "version": "0.5.23"}
        instances = (
            Instance(name="p", role=Role.PREFILL, url="http://127.0.0.1:9", bootstrap_port=8998, **common),  # type: ignore[arg-type]
            Instance(name="d", role=Role.DECODE, url="http://127.0.0.2:9", **common),  # type: ignore[arg-type]
            Instance(name="router", role=Role.ROUTER, dialect="smg", url=router.url),
        )
        deployment = Deployment(name="x", model="smol", instances=instances)
        report = prove(deployment, lock_folder=folder, timeout_s=10.0, **options)  # type: ignore[arg-type]
    return report, router.requests


def test_known_answer_is_close(tmp_path: Path) -> None:
    """The known answer in the text proves service; what cannot be seen is listed."""
    report, requests = through_router(tmp_path, PARIS)
    [result] = report.results
    assert (result.output, report.exit_code) == (Output.CLOSE, 0)
    assert [item.stage for item in result.stages] == [Stage.FIRST_BYTE, Stage.LAST_BYTE]
    assert Stage.KV_LANDED in result.unseen
    assert result.kv_bytes is None
    body = requests[0].json()
    assert (body["model"], body["temperature"], body["stream"]) == ("smol", 0, True)
    assert requests[0].headers["X-Request-ID"] == result.id


def test_kv_use_that_is_not_known_is_noted(tmp_path: Path) -> None:
    """Engines that do not tell their KV use are probed, and the report says so."""
    report, _ = through_router(tmp_path, PARIS)
    assert report.notes == (
        "p: KV use not known, probed all the same",
        "d: KV use not known, probed all the same",
    )


def test_wrong_answer_is_garbled(tmp_path: Path) -> None:
    """HTTP 200 with another text is a failure that shows the text."""
    report, _ = through_router(tmp_path, Reply(stream("!!!!", "!!!!")))
    assert (report.results[0].output, report.exit_code) == (Output.GARBLED, 1)
    assert "!!!!!!!!" in report.results[0].why


def test_error_event_is_a_failure_in_spite_of_done(tmp_path: Path) -> None:
    """smg ends a broken stream with an error event and [DONE]; that is no success."""
    event = b'data: {"error":{"message":"Stream error: peer died","type":"stream_error"}}\n\ndata: [DONE]\n\n'
    report, _ = through_router(tmp_path, Reply(stream("Paris", done=False) + event))
    assert report.exit_code == 1
    assert "peer died" in report.results[0].why


def test_stream_without_done_is_broken(tmp_path: Path) -> None:
    """An end without [DONE] is a broken stream, even if the answer was in it."""
    report, _ = through_router(tmp_path, Reply(stream("Paris", done=False)))
    assert report.exit_code == 1
    assert "broke off" in report.results[0].why
    assert report.results[0].stage is Stage.FIRST_BYTE


def test_connection_that_breaks_is_a_reset(tmp_path: Path) -> None:
    """A router that dies in the middle of its answer is `reset`."""
    report, _ = through_router(tmp_path, Reply(stream("Par"), content_length=9999))
    assert report.results[0].error == "reset"


def test_refusal_shows_status_and_words(tmp_path: Path) -> None:
    """The router's own error message is shown."""
    body = {"error": {"message": "No available decode workers", "code": "no_healthy_worker_pair"}}
    report, _ = through_router(tmp_path, Reply(body, 503))
    [result] = report.results
    assert (result.status, result.error, result.verdict) == (503, None, Verdict.NOT_PROVEN)
    assert result.why == "router: HTTP 503: No available decode workers"


def pair_of(dialect: str, prefill: FakeServer, decode: FakeServer) -> Deployment:
    instances = (
        Instance(name="p", role=Role.PREFILL, dialect=dialect, url=prefill.url, bootstrap_port=8998),
        Instance(name="d", role=Role.DECODE, dialect=dialect, url=decode.url),
    )
    return Deployment(name="x", model="smol", instances=instances)


def test_sglang_pair_gets_one_room_on_both_legs(tmp_path: Path) -> None:
    """SGLang without a router: the same chat body with one room to prefill and decode."""
    with FakeServer({CHAT: PARIS}) as prefill, FakeServer({CHAT: PARIS}) as decode:
        report = prove(pair_of("sglang", prefill, decode), direct=True, lock_folder=tmp_path, timeout_s=10.0)
    assert report.exit_code == 0
    assert prefill.requests[-1].json() == decode.requests[-1].json()
    assert "bootstrap_room" in prefill.requests[-1].json()


def test_vllm_pair_hands_over_what_prefill_answered(tmp_path: Path) -> None:
    """vLLM without a router: prefill keeps one token's KV, and decode gets exactly the parameters it answered."""
    params = {"do_remote_prefill": True, "remote_engine_id": "e1", "remote_block_ids": [3, 4]}
    with FakeServer({CHAT: Reply({"kv_transfer_params": params})}) as prefill, FakeServer({CHAT: PARIS}) as decode:
        report = prove(pair_of("vllm", prefill, decode), direct=True, lock_folder=tmp_path, timeout_s=10.0)
    [first] = [request for request in prefill.requests if request.method == "POST"]
    [second] = [request for request in decode.requests if request.method == "POST"]
    assert report.exit_code == 0
    assert (first.json()["max_tokens"], first.json()["stream"]) == (1, False)
    assert first.json()["kv_transfer_params"] == {"do_remote_decode": True, "do_remote_prefill": False}
    assert second.json()["kv_transfer_params"] == params


def test_vllm_prefill_without_parameters_is_not_proven(tmp_path: Path) -> None:
    """A prefill that keeps no KV is not proven, and decode is not asked: it would compute the prompt itself."""
    with FakeServer({CHAT: Reply({"choices": []})}) as prefill, FakeServer({CHAT: PARIS}) as decode:
        report = prove(pair_of("vllm", prefill, decode), direct=True, lock_folder=tmp_path, timeout_s=10.0)
    assert report.exit_code == 1
    assert decode.paths("POST") == []


IDLE_PAIR = b"""captured_at = 2026-06-19T14:30:00Z
[[instance]]
name = "p"
role = "prefill"
dialect = "vllm"
[[instance]]
name = "d"
role = "decode"
dialect = "vllm"
"""
IDLE = b"vllm:iteration_tokens_total_count 7\nvllm:num_requests_running 0\n"


def judged(report: ProbeReport) -> Whole:
    """Return the diagnosis of two idle engines after the probe."""
    files = {"topology.toml": b"captured_prev_at = 2026-06-19T14:29:30Z\n" + IDLE_PAIR}
    files |= {f"{name}/{file}": IDLE for name in "pd" for file in ("metrics.txt", "metrics.prev.txt")}
    return diagnose(evidence_of({**files, PROBE_FILE: probe_document(report.results)})).verdict


@pytest.mark.parametrize("status", [500, 503])
@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_an_error_of_the_first_leg_is_an_answer(tmp_path: Path, dialect: str, status: int) -> None:
    """What prefill answers is the status of the probe, also where decode was not asked or did not end: no silence."""
    hang = threading.Event()

    def wait(request: Request) -> Reply | None:
        hang.wait(10)
        return None

    with FakeServer({CHAT: Reply({"message": "no"}, status)}) as prefill, FakeServer({CHAT: wait}) as decode:
        report = prove(pair_of(dialect, prefill, decode), direct=True, lock_folder=tmp_path, timeout_s=10.0)
        hang.set()
    [result] = report.results
    assert (result.status, result.error, result.verdict) == (status, None, Verdict.NOT_PROVEN)
    assert judged(report) is Whole.FAILING


@pytest.mark.parametrize("answer", [Reply({"choices": []}), Reply({"kv_transfer_params": {"x": 1}})])
def test_an_answer_that_proves_nothing_is_no_success(tmp_path: Path, answer: Reply) -> None:
    """A prefill that keeps no KV and a stream that breaks off fail with status 200: neither silence nor service."""
    broken = Reply(stream("Par", done=False))
    with FakeServer({CHAT: answer}) as prefill, FakeServer({CHAT: broken}) as decode:
        report = prove(pair_of("vllm", prefill, decode), direct=True, lock_folder=tmp_path, timeout_s=10.0)
    assert (report.results[0].status, report.results[0].verdict) == (200, Verdict.NOT_PROVEN)
    assert judged(report) is Whole.FAILING


def test_dynamo_takes_no_direct_request(tmp_path: Path) -> None:
    """Dynamo's workers are reached through their frontend only."""
    with FakeServer() as prefill, FakeServer() as decode, pytest.raises(CannotTell, match="without a router"):
        prove(pair_of("dynamo", prefill, decode), direct=True, lock_folder=tmp_path)


def test_reasoning_counts_as_text() -> None:
    """A model that thinks first says the answer in another field."""
    chunk = b'data: {"choices":[{"delta":{"reasoning_content":"Paris","content":null}}]}\n\ndata: [DONE]\n\n'
    assert stream_text(chunk).text == "Paris"


@given(st.binary() | st.text().map(lambda text: f"data: {text}\n\n".encode()))
def test_any_bytes_give_a_text_or_a_problem(body: bytes) -> None:
    """Whatever an engine sends, reading it raises nothing, and no rubbish is taken for a whole answer."""
    read = stream_text(body)
    assert read.problem is not None or b"[DONE]" in body
