"""What looks like proof and is none: helper processes, replicas, short lists, limits that clients set."""

# ruff: noqa: E501 - lines of logs and files stand as engines print them.
from __future__ import annotations

import pytest

from tests.unit.pdctl.diagnose import incident as make

_IDLE = "recv_pyobj@zmq/sugar/socket.py < recv_requests < event_loop_overlap_disagg_prefill"
_HELPERS = ("worker", "_read_thread", "_heartbeat")
_LOOP = "event_loop_overlap < dispatch_event_loop"
_REDUCE = f"all_reduce@torch/distributed_c10d.py < poll_and_all_reduce < {_LOOP}"
_BROADCAST = f"broadcast@torch/distributed_c10d.py < recv_requests < {_LOOP}"
_QUIET_LOG = "[2026-06-19 14:10:00 TP0] Decode batch, #running-req: 4, #queue-req: 1, gen throughput (token/s): 50.0\n"


def test_helper_processes_need_no_bootstrap_thread() -> None:
    """The HTTP parent and the detokenizer have many threads, and never that one."""
    stacks = make.stack(1, "python3 -m sglang.launch_server", "run < serve@uvicorn/server.py", *_HELPERS)
    stacks += make.stack(2, "sglang::detokenizer", "event_loop", *_HELPERS)
    stacks += make.stack(3, "sglang::scheduler", _IDLE, "bootstrap_thread", "transfer_worker", "_watchdog")
    report = make.report(make.PAIR, **make.stalled_pair(), p__stacks_txt=stacks)
    assert "PD0301" in [row.code for row in report.ruled_out]


def test_a_rank_and_its_parent_are_no_two_ranks() -> None:
    """What the parent does is no step that a rank must keep."""
    stacks = make.stack(1, "python3 -m sglang.launch_server", "run < serve@uvicorn/server.py")
    stacks += make.stack(2, "sglang::scheduler_TP0", _REDUCE)
    files = {"e__stacks_txt": stacks, "e__stacks_prev_txt": stacks, "e__log_txt": _QUIET_LOG}
    report = make.report(make.instance("e", "unified"), **files)
    assert "PD0501" not in [cause.code for cause in report.firm]


@pytest.mark.parametrize(("flags", "is_apart"), [('"--dp-size", "2"', False), ('"--enable-dp-attention"', True)])
def test_replicas_keep_step_only_with_dp_attention(flags: str, *, is_apart: bool) -> None:
    """Data-parallel replicas stand where they like, unless attention ties them together."""
    stacks = make.stack(1, "sglang::scheduler_DP0_TP0", _REDUCE)
    stacks += make.stack(2, "sglang::scheduler_DP1_TP0", _BROADCAST)
    source = f'version = "0.5.12"\nflags = [{flags}]\n'
    files = {"e__stacks_txt": stacks, "e__stacks_prev_txt": stacks, "e__log_txt": _QUIET_LOG}
    report = make.report(make.instance("e", "unified"), **files, e__source_toml=source)
    assert ("PD0501" in [cause.code for cause in report.firm]) is is_apart


def test_a_short_list_of_processes_shows_no_dead_rank() -> None:
    """A list made by hand may lack a rank that lives."""
    rows = [
        ("python3 -m sglang.launch_server", "S"),
        ("sglang::scheduler_TP0", "S"),
        ("sglang::detokenizer", "S"),
    ]
    process = "".join(
        f'[[process]]\npid = {pid}\ntitle = "{title}"\nstate = "{state}"\n'
        for pid, (title, state) in enumerate(rows, 1)
    )
    topology = make.instance("p", "prefill", tp=2, more="bootstrap_port = 8998") + make.instance("d", "decode", host=2)
    report = make.report(topology, **make.stalled_pair(), p__process_toml=process)
    assert "PD0103" not in [cause.code for cause in report.causes if cause.confidence == "established"]


_WAITS = (
    'vllm:num_requests_waiting{model_name="m"} %d\nvllm:num_requests_running{model_name="m"} 0\n'
    'vllm:kv_cache_usage_perc{model_name="m"} 0.0\nvllm:request_success_total{model_name="m"} 5\n'
    'vllm:iteration_tokens_total_count{model_name="m"} 40\n'
    'vllm:generation_tokens_total{model_name="m"} 90\nvllm:prompt_tokens_total{model_name="m"} 90\n'
)
_SIZES = (
    "INFO 06-19 14:00:00 [model.py:1547] Using max model len 262144\n"
    "INFO 06-19 14:00:30 [kv_cache_utils.py:1305] GPU KV cache size: 76,640 tokens\n"
)


def _received(*limits: int) -> str:
    return "".join(
        f"INFO 06-19 14:2{minute}:00 [logger.py:40] Received request cmpl-{minute}: params: SamplingParams(n=1, max_tokens={limit}), lora_request: None.\n"
        for minute, limit in enumerate(limits)
    )


@pytest.mark.parametrize(
    ("limits", "is_named"),
    [((250000, 261000, 143242), True), ((512, 512, 512), False), ((131072, 131072, 131072), False)],
)
def test_a_limit_that_clients_set_tells_no_size(limits: tuple[int, ...], *, is_named: bool) -> None:
    """Only a limit that is the rest of the model's length tells how long the prompt was."""
    waits = _WAITS % 1
    files = {"e__metrics_txt": waits, "e__metrics_prev_txt": waits, "e__log_txt": _SIZES + _received(*limits)}
    report = make.report(make.instance("e", "unified", "vllm"), **files, e__http_toml=make.HEALTHY_GET)
    assert ("PD0405" in [cause.code for cause in report.firm]) is is_named


@pytest.mark.parametrize(("waiting", "verdict"), [(1, "unknown"), (30, "wedged")])
def test_one_lone_request_makes_no_wedge(waiting: int, verdict: str) -> None:
    """It may be one that fits nowhere; thirty on an empty engine are another thing."""
    waits = _WAITS % waiting
    files = {"e__metrics_txt": waits, "e__metrics_prev_txt": waits, "e__http_toml": make.HEALTHY_GET}
    report = make.report(make.instance("e", "unified", "vllm"), **files)
    assert (report.verdict, report.abstains) == (verdict, True)


@pytest.mark.parametrize(("state", "is_well"), [("ready", True), ("notready", False)])
def test_a_dynamo_worker_that_says_notready_serves_when_its_endpoints_do(state: str, *, is_well: bool) -> None:
    """Its own /health says 503 all its life; the endpoints in the body tell."""
    body = '{"status": "notready", "endpoints": {"generate": "STATE"}}'.replace("STATE", state)
    get = f"[[get]]\npath = \"/health\"\nstatus = 503\ntook_ms = 5\nbody = '{body}'\n"
    report = make.report(make.instance("w", "decode", "dynamo"), w__http_toml=get)
    assert (not [row for row in report.symptoms if row.symptom == "unhealthy"]) is is_well


_WRONG = '[[probe]]\nat = 2026-06-19T14:29:30Z\nvia = "router"\ntook_ms = 300\nstatus = 200\noutput = "garbled"\n'


@pytest.mark.parametrize(
    ("dialect", "more", "is_proof"),
    [("sglang", 'id = "pdctl-probe-1"\n', False), ("sglang", "", True), ("pdctl", 'id = "pdctl-probe-1"\n', True)],
    ids=["a question to a model we cannot score", "somebody compared it", "scored by our engine"],
)
def test_a_wrong_answer_proves_damage_where_somebody_could_tell(dialect: str, more: str, *, is_proof: bool) -> None:
    """A weak model, or a mock, answers a question wrong in the best of health; it is not called healthy either."""
    topology = make.instance("p", "prefill", dialect) + make.instance("d", "decode", dialect, host=2)
    report = make.report(
        topology, probe_toml=_WRONG + more, p__http_toml=make.HEALTHY_GET, d__http_toml=make.HEALTHY_GET
    )
    assert ("PD0309" in [cause.code for cause in report.firm]) is is_proof
    assert report.verdict != "healthy"
