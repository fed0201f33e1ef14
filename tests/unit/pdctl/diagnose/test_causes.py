"""One small incident a mechanism: what it names, and that its look-alike is not named."""

# ruff: noqa: E501 - lines of logs and files stand as engines print them.
from __future__ import annotations

import pytest

from pdctl.diagnose.report import Report
from tests.unit.pdctl.diagnose import incident as make

_IDLE_LOOP = "recv_pyobj@zmq/sugar/socket.py < recv_requests < event_loop_overlap_disagg_prefill"
_TRANSFERS = ("transfer_worker", "transfer_worker", "_watchdog_thread")


def _first(report: Report) -> str | None:
    return report.firm[0].code if report.firm else None


def _status(report: Report, code: str) -> str:
    if any(row.code == code for row in report.ruled_out):
        return "ruled_out"
    return next((cause.confidence for cause in report.causes if cause.code == code), "not named")


def test_a_missing_bootstrap_thread_is_established() -> None:
    """A scheduler that shows its other threads and lacks this one has lost it."""
    report = make.report(
        make.PAIR,
        **make.stalled_pair(),
        p__stacks_txt=make.stack(10, "sglang::scheduler", _IDLE_LOOP, *_TRANSFERS),
    )
    assert (_first(report), _status(report, "PD0301"), report.verdict) == ("PD0301", "established", "wedged")


def test_a_bootstrap_thread_that_runs_rules_it_out() -> None:
    """With the thread in every full dump it cannot be this, whatever the queues say."""
    stacks = make.stack(10, "sglang::scheduler", _IDLE_LOOP, "bootstrap_thread", *_TRANSFERS)
    report = make.report(make.PAIR, **make.stalled_pair(), p__log_txt=make.abort_burst(), p__stacks_txt=stacks)
    assert _status(report, "PD0301") == "ruled_out"


def test_a_dump_of_the_main_thread_alone_proves_no_absence() -> None:
    """A dump that shows nothing else is no complete source."""
    stacks = make.stack(10, "sglang::scheduler", _IDLE_LOOP)
    report = make.report(make.PAIR, **make.stalled_pair(), p__stacks_txt=stacks)
    assert _status(report, "PD0301") != "established"


def test_queues_and_an_abort_burst_support_a_dead_bootstrap_thread() -> None:
    """Without stacks, two kinds of sources make it supported, not established."""
    report = make.report(make.PAIR, **make.stalled_pair(), p__log_txt=make.abort_burst())
    assert _status(report, "PD0301") == "supported"


def test_one_kind_of_source_is_not_enough() -> None:
    """The queues alone leave it a hypothesis, and the report abstains."""
    report = make.report(make.PAIR, **make.stalled_pair())
    assert report.abstains
    assert report.verdict == "wedged"


def test_a_traceback_of_a_transfer_worker() -> None:
    """The thread's own last words, while its rooms stand still."""
    log = "[2026-06-19 14:20:00 TP0] x\nException in thread Thread-4 (transfer_worker):\nIndexError: list index\n"
    report = make.report(make.PAIR, **make.stalled_pair(), p__log_txt=log)
    assert _first(report) == "PD0302"


def test_decodes_listener_died() -> None:
    """The same on decode's side."""
    log = "[2026-06-19 14:20:00 TP0] x\nException in thread Thread-4 (decode_listener_thread):\n"
    assert _first(make.report(make.PAIR, **make.stalled_pair(), d__log_txt=log)) == "PD0303"


@pytest.mark.parametrize("before", [True, False])
def test_ranks_in_different_collectives(before: bool) -> None:
    """Two ranks left each other in the scheduler: two dumps that agree, or one of an engine that stands."""
    loop = "event_loop_overlap < dispatch_event_loop"
    stacks = make.stack(
        1, "sglang::scheduler_TP0", f"all_reduce@torch/distributed_c10d.py < poll_and_all_reduce < {loop}"
    )
    stacks += make.stack(2, "sglang::scheduler_TP1", f"broadcast@torch/distributed_c10d.py < recv_requests < {loop}")
    log = "[2026-06-19 14:10:00 TP0] Decode batch, #running-req: 4, #queue-req: 1, gen throughput (token/s): 50.0\n"
    files = {"e__stacks_txt": stacks, "e__log_txt": log}
    if before:
        files["e__stacks_prev_txt"] = stacks
    report = make.report(make.instance("e", "unified", tp=2), **files)
    assert (_first(report), report.verdict) == ("PD0501", "wedged")


def test_ranks_that_wait_for_requests_are_idle() -> None:
    """Rank 0 reads its socket, the others wait for its broadcast: that is how a healthy engine idles."""
    loop = "recv_requests < event_loop_overlap < dispatch_event_loop"
    stacks = make.stack(1, "sglang::scheduler_TP0", f"recv_pyobj@zmq/sugar/socket.py < _pull_raw_reqs < {loop}")
    stacks += make.stack(2, "sglang::scheduler_TP1", f"broadcast@torch/distributed_c10d.py < broadcast_pyobj < {loop}")
    report = make.report(make.instance("e", "unified", tp=2), e__stacks_txt=stacks, e__stacks_prev_txt=stacks)
    assert report.abstains


def test_ranks_that_part_inside_a_forward_pass() -> None:
    """The same inside one forward pass is the device's collective, not the scheduler's."""
    outer = "run_batch < event_loop_overlap < dispatch_event_loop"
    stacks = make.stack(1, "sglang::scheduler_TP0", f"replay@torch/cuda/graphs.py < draft < {outer}")
    stacks += make.stack(2, "sglang::scheduler_TP1", f"dp_gather < forward_target < {outer}")
    log = "[2026-06-19 14:10:00 TP0] Decode batch, #running-req: 4, #queue-req: 1, gen throughput (token/s): 50.0\n"
    report = make.report(
        make.instance("e", "unified", tp=2), e__stacks_txt=stacks, e__stacks_prev_txt=stacks, e__log_txt=log
    )
    assert _first(report) == "PD0601"


def test_a_scheduler_in_a_blocking_call() -> None:
    """Its loop waits for somebody's HTTP answer."""
    stacks = make.stack(
        1,
        "sglang::scheduler",
        "recv_into@socket.py < get@requests/api.py < _ensure_prefill_info < event_loop",
    )
    report = make.report(make.PAIR, **make.stalled_pair(), d__stacks_txt=stacks, d__stacks_prev_txt=stacks)
    assert "PD0503" in [cause.code for cause in report.firm]


def test_a_stopped_instance() -> None:
    """State T: alive for the kernel, dead for its peers."""
    process = '[[process]]\npid = 5\ntitle = "sglang::scheduler"\nstate = "T"\n'
    report = make.report(make.PAIR, p__process_toml=process, probe_toml=make.PROBE_TIMEOUT)
    assert (_first(report), report.firm[0].subject.instance) == ("PD0305", "p")


def test_a_gone_instance() -> None:
    """No process is left, and its peer fails requests."""
    process = '[[process]]\npid = 5\ntitle = "sglang::scheduler"\nstate = "gone"\n'
    report = make.report(
        make.PAIR, p__process_toml=process, p__http_toml=make.REFUSED_GET, d__http_toml=make.HEALTHY_GET
    )
    assert _first(report) == "PD0101"


def test_a_port_that_refuses_while_weights_load_is_no_death() -> None:
    """The engine opens its port when it has loaded: wait."""
    log = "[2026-06-19 14:27:00 TP0] Init torch distributed begin.\n[2026-06-19 14:28:30 TP0] Load weight begin.\n"
    report = make.report(make.PAIR, p__log_txt=log, p__http_toml=make.REFUSED_GET)
    assert (_first(report), report.verdict) == ("PD0902", "not_a_wedge")


def test_a_zombie_parent() -> None:
    """One rank is dead, its siblings and the HTTP parent live."""
    rows = [
        ("python3 -m sglang.launch_server", "S"),
        ("sglang::scheduler_TP0", "S"),
        ("sglang::scheduler_TP1", "Z"),
    ]
    process = "".join(
        f'[[process]]\npid = {pid}\ntitle = "{title}"\nstate = "{state}"\n'
        for pid, (title, state) in enumerate(rows, 1)
    )
    files = {**make.stalled_pair(), "p__process_toml": process}
    assert _first(make.report(make.PAIR, **files)) == "PD0103"


def test_an_xid_before_anything_else() -> None:
    """A GPU's own report explains the dead rank that follows."""
    process = '[[process]]\npid = 5\ntitle = "sglang::scheduler"\nstate = "gone"\nexit_code = 1\n'
    gpu = "[[gpu]]\nindex = 3\nxid = [79]\n"
    report = make.report(make.PAIR, p__process_toml=process, p__gpu_toml=gpu)
    assert _first(report) == "PD0701"


def test_the_kernel_killed_it() -> None:
    """Killed for memory is another remedy than gone."""
    process = (
        '[[process]]\npid = 5\ntitle = "sglang::scheduler"\nstate = "gone"\nsignal = "SIGKILL"\noom_killed = true\n'
    )
    assert _first(make.report(make.PAIR, p__process_toml=process)) == "PD0702"


def test_a_segfault_in_the_transfer_library() -> None:
    """Signal 11 and a NIXL frame under it."""
    process = '[[process]]\npid = 5\ntitle = "sglang::scheduler_TP0"\nstate = "gone"\nsignal = 11\n'
    log = 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n  File "a/_api.py", line 792 in add_remote_agent\n'
    assert _first(make.report(make.PAIR, p__process_toml=process, p__log_txt=log)) == "PD0312"


def test_a_page_size_mismatch() -> None:
    """The engine names the field of the contract."""
    log = "[2026-06-19 14:29:00 TP0] RuntimeError: Page size mismatch: prefill 16, decode 64\n"
    report = make.report(make.PAIR, d__log_txt=log, p__http_toml=make.HEALTHY_GET)
    assert (_first(report), report.firm[0].label) == ("PD0201", "handshake_misconfig")


def test_a_router_that_announces_another_port() -> None:
    """`--prefill URL 8998` while prefill was started with 9001."""
    topology = make.PAIR + make.instance("r", "router", "smg", host=9)
    report = make.report(
        topology,
        p__http_toml=make.HEALTHY_GET,
        p__source_toml='flags = ["--disaggregation-bootstrap-port", "9001"]\n',
        r__source_toml='flags = ["--prefill", "http://192.0.2.1:30000", "8998"]\n',
        probe_toml=make.PROBE_TIMEOUT,
    )
    assert _first(report) == "PD0204"


def test_a_wrong_answer_with_status_200() -> None:
    """No counter moved, and the answer is wrong."""
    probe = '[[probe]]\nvia = "router"\nstatus = 200\noutput = "garbled"\n'
    assert _first(make.report(make.PAIR, probe_toml=probe)) == "PD0309"


def test_a_checksum_that_differs() -> None:
    """The engine compared what it sent with what arrived."""
    log = "[2026-06-19 14:29:00 TP0] KV checksum mismatch for room 5\n"
    assert _first(make.report(make.PAIR, d__log_txt=log, d__http_toml=make.HEALTHY_GET)) == "PD0309"


def test_one_room_two_ends() -> None:
    """Prefill failed it at once, decode waited for its own clock."""
    reason = "with exception KVTransferError(bootstrap_room=77): "
    prefill = f"[2026-06-19 14:20:00 TP0] Prefill transfer failed for request rank=0 req.rid='a' req.bootstrap_room=77 {reason}NIXL error\n"
    decode = (
        "[2026-06-19 14:25:00 TP0] Decode transfer failed for request rank=0 decode_req.req.rid='a' "
        f"decode_req.req.bootstrap_room=77 {reason}Request 77 timed out after 300.1s in KVPoll.WaitingForInput\n"
    )
    report = make.report(
        make.PAIR,
        p__log_txt=prefill,
        d__log_txt=decode,
        p__http_toml=make.HEALTHY_GET,
        d__http_toml=make.HEALTHY_GET,
    )
    assert _first(report) == "PD0308"


def test_a_session_that_was_never_tried_again() -> None:
    """One failure hours ago, and every room since refused at once."""
    topology = make.instance("p", "prefill", transfer="mooncake") + make.instance(
        "d", "decode", host=2, transfer="mooncake"
    )
    prefill = "[2026-06-19 12:00:00 TP0] Session 192.0.2.2:16002 failed.\n"
    line = (
        "[2026-06-19 14:29:0{0} TP0] Decode transfer failed for request rank=0 decode_req.req.rid='a' decode_req.req.bootstrap_room=9{0} "
        "with exception KVTransferError(bootstrap_room=9{0}): Failed to get kvcache from prefill instance, it might be dead\n"
    )
    files = {"p__log_txt": prefill, "d__log_txt": "".join(line.format(digit) for digit in range(5))}
    report = make.report(topology, **files, p__http_toml=make.HEALTHY_GET, d__http_toml=make.HEALTHY_GET)
    assert _first(report) == "PD0311"


def test_a_session_that_recovered_is_not_blamed() -> None:
    """The probe lifted the ban; what fails later fails for another reason."""
    topology = make.instance("p", "prefill", transfer="mooncake") + make.instance(
        "d", "decode", host=2, transfer="mooncake"
    )
    prefill = (
        "[2026-06-19 12:00:00 TP0] Session 192.0.2.2:16002 failed.\n"
        "[2026-06-19 12:00:30 TP0] Session 192.0.2.2:16002 recovered via probe; un-blacklisted\n"
    )
    report = make.report(topology, p__log_txt=prefill, p__http_toml=make.HEALTHY_GET, d__http_toml=make.HEALTHY_GET)
    assert _status(report, "PD0311") == "not named"


def _vllm(**values: float) -> str:
    names = {
        "running": "vllm:num_requests_running", "waiting": "vllm:num_requests_waiting", "kv": "vllm:kv_cache_usage_perc",
        "steps": "vllm:iteration_tokens_total_count", "tokens": "vllm:generation_tokens_total",
        "done": 'vllm:request_success_total{finished_reason="stop"}',
        "landed": 'vllm:num_requests_kv_fetch_by_stage{stage="completed_waiting"}',
    }  # fmt: skip
    return "".join(f"{names[key]} {value}\n" for key, value in values.items())


def test_a_full_pool_that_nothing_frees() -> None:
    """KV is full, nothing runs, requests wait, no step happens."""
    scrape = _vllm(running=0, waiting=30, kv=0.98, steps=500, tokens=9000, done=70)
    report = make.report(make.instance("d", "decode", "vllm"), d__metrics_txt=scrape, d__metrics_prev_txt=scrape)
    assert (_first(report), report.verdict) == ("PD0401", "wedged")


def test_landed_requests_that_are_never_scheduled() -> None:
    """Their KV is there, nothing runs, no step happens: the scheduler does not look."""
    scrape = _vllm(running=0, waiting=9, kv=0.6, steps=500, tokens=9000, done=70, landed=9)
    report = make.report(make.instance("d", "decode", "vllm"), d__metrics_txt=scrape, d__metrics_prev_txt=scrape)
    assert _first(report) == "PD0504"


def test_long_queues_that_move_are_load() -> None:
    """Everything waits and everything is served: scale, do not restart."""
    log = "[2026-06-19 14:29:50 TP0] Decode batch, #running-req: 60, #queue-req: 30, gen throughput (token/s): 900.0\n"
    report = make.report(
        make.instance("e", "unified", "vllm"),
        e__metrics_txt=_vllm(running=60, waiting=30, kv=0.97, steps=900, tokens=99000, done=170),
        e__metrics_prev_txt=_vllm(running=60, waiting=28, kv=0.97, steps=500, tokens=9000, done=70),
        e__log_txt=log,
    )
    assert (_first(report), report.verdict) == ("PD0901", "not_a_wedge")


def test_requests_that_no_worker_has() -> None:
    """The frontend waits for a dozen, the workers hold none."""
    topology = make.instance("f", "router", "dynamo", host=9) + make.instance("d", "decode", "dynamo", host=2)
    front = 'dynamo_frontend_inflight_requests 12\ndynamo_frontend_requests_total{status="success"} 500\n'
    worker = 'dynamo_component_inflight_requests{dynamo_endpoint="generate"} 0\ndynamo_component_requests_total{dynamo_endpoint="generate"} 500\n'
    report = make.report(
        topology,
        f__metrics_txt=front,
        f__metrics_prev_txt=front,
        d__metrics_txt=worker,
        d__metrics_prev_txt=worker,
    )
    assert (_first(report), report.verdict) == ("PD0805", "wedged")


def test_kv_in_use_without_a_request_is_a_leak() -> None:
    """Two samples of an idle engine with pages in use."""
    scrape = (
        "sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\nsglang:num_used_tokens 16384\n"
        "sglang:num_requests_total 50\nsglang:num_aborted_requests_total 9\n"
    )
    report = make.report(
        make.instance("e", "unified"),
        e__metrics_txt=scrape,
        e__metrics_prev_txt=scrape,
        e__http_toml=make.HEALTHY_GET,
    )
    assert (_first(report), report.verdict) == ("PD0403", "degraded")


def test_an_idle_system_with_a_passed_probe_is_healthy() -> None:
    """No traffic is no trouble, once the path is proven."""
    scrape = "sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\nsglang:num_requests_total 50\n"
    files = {"e__metrics_txt": scrape, "e__metrics_prev_txt": scrape}
    assert make.report(make.instance("e", "unified"), **files, probe_toml=make.PROBE_PASSED).verdict == "healthy"
    assert make.report(make.instance("e", "unified"), **files).verdict == "unknown"


def test_a_restart_of_one_side_with_failures_since() -> None:
    """Ages far apart, and transfers fail since the younger began."""
    process = '[[process]]\npid = 5\ntitle = "sglang::scheduler"\nstate = "S"\nstarted_at = {0}\n'
    log = "[2026-06-19 14:29:00 TP0] NIXL transport error for room 12\n"
    report = make.report(
        make.PAIR,
        **make.stalled_pair(),
        p__process_toml=process.format("2026-06-17T08:00:00Z"),
        d__process_toml=process.format("2026-06-19T14:00:00Z"),
        d__log_txt=log,
    )
    assert _first(report) == "PD0307"


def test_sides_of_one_age_rule_a_one_sided_restart_out() -> None:
    """Both began together: nobody was restarted alone."""
    process = '[[process]]\npid = 5\ntitle = "sglang::scheduler"\nstate = "S"\nstarted_at = 2026-06-17T08:00:0{0}Z\n'
    report = make.report(
        make.PAIR, **make.stalled_pair(), p__process_toml=process.format(1), d__process_toml=process.format(9)
    )
    assert _status(report, "PD0307") == "ruled_out"


def test_a_few_errors_among_many_transfers_are_noise() -> None:
    """Two transport errors in a thousand requests make nobody restart anything."""
    log = "[2026-06-19 14:25:00 TP0] NIXL transport error for room 12\n[2026-06-19 14:26:00 TP0] NIXL transport error for room 13\n"
    decode = "sglang:num_running_reqs 9\nsglang:num_transfer_failed_reqs_total {0}\nsglang:num_requests_total {1}\n"
    report = make.report(
        make.PAIR,
        d__metrics_txt=decode.format(12, 3000),
        d__metrics_prev_txt=decode.format(10, 2000),
        d__log_txt=log,
        p__http_toml=make.HEALTHY_GET,
        d__http_toml=make.HEALTHY_GET,
    )
    assert report.abstains
