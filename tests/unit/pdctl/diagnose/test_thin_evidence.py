"""Where a source is missing, the rest names no more than it shows."""

from __future__ import annotations

import pytest

from pdctl.diagnose.report import Report
from tests.unit.pdctl.diagnose import incident as make

_GONE = '[[process]]\npid = 5\ntitle = "python3 -m sglang.launch_server"\nstate = "gone"\n'
_STEP = "[2026-06-19 14:29:{second} TP0] Decode batch, #running-req: 4, #queue-req: 3, gen throughput (token/s): 50.0\n"
_MUTE = '[[get]]\npath = "/health"\nerror = "timeout"\ntook_ms = 5000\ntimeout_ms = 5000\n'


def _firm(report: Report) -> list[str]:
    return [cause.code for cause in report.firm]


@pytest.mark.parametrize(
    ("more", "files", "is_named"),
    [
        ("", {}, False),
        ("exit_code = 1\n", {}, True),
        ("", {"e__log_txt": "[2026-06-19 14:20:00] The server is fired up and ready to roll!\n"}, True),
    ],
    ids=["nothing known of its end", "an exit status", "a log without a reason"],
)
def test_the_death_of_everything_is_a_cause_only_where_its_reason_would_show(
    more: str, files: dict[str, str], *, is_named: bool
) -> None:
    """One engine, gone, and no other that lives: somebody or something ended it, and without a trace nobody knows."""
    report = make.report(
        make.instance("e", "unified"), e__process_toml=_GONE + more, e__http_toml=make.REFUSED_GET, **files
    )
    assert ("PD0101" in _firm(report)) is is_named


def test_the_death_of_one_among_the_living_is_a_cause() -> None:
    """The same process list, beside a peer that answers."""
    report = make.report(make.PAIR, p__process_toml=_GONE, d__http_toml=make.HEALTHY_GET)
    assert _firm(report) == ["PD0101"]


@pytest.mark.parametrize(("exit_code", "is_loop"), [(0, False), (143, False), (1, True), (137, True)])
def test_restarts_in_good_order_are_no_crash_loop(exit_code: int, *, is_loop: bool) -> None:
    """A counter of three, and an end that somebody ordered: a watchdog, an operator, a rollout."""
    process = '[[process]]\npid = 1\ntitle = "python3"\nstate = "S"\nstarted_at = 2026-06-19T14:26:00Z\nrestarts = 3\n'
    report = make.report(make.instance("e", "unified"), e__process_toml=f"{process}exit_code = {exit_code}\n")
    assert ("PD0102" in _firm(report)) is is_loop


def test_a_line_of_its_death_makes_it_a_loop_whatever_the_exit_code() -> None:
    """SGLang's parent ends with 0 after a child has died."""
    process = '[[process]]\npid = 1\ntitle = "python3"\nstate = "S"\nstarted_at = 2026-06-19T14:26:00Z\nrestarts = 3\n'
    log = "[2026-06-19 14:25:40] Received sigquit from a child process. It usually means the child failed.\n"
    report = make.report(make.instance("e", "unified"), e__process_toml=process + "exit_code = 0\n", e__log_txt=log)
    assert "PD0102" in _firm(report)


def _queue(waiting: int, done: int, *, running: int, waited_s: float, usage: float = 0.97) -> str:
    return (
        f"vllm:num_requests_waiting {waiting}\nvllm:num_requests_running {running}\nvllm:kv_cache_usage_perc {usage}\n"
        f'vllm:request_success_total{{finished_reason="stop"}} {done}\nvllm:iteration_tokens_total_count {done * 9}\n'
        f"vllm:generation_tokens_total {done * 90}\nvllm:prompt_tokens_total {done * 90}\n"
        f"vllm:time_to_first_token_seconds_count {done}\nvllm:time_to_first_token_seconds_sum {done * waited_s}\n"
    )


@pytest.mark.parametrize(
    ("running", "waited_s", "before", "is_overload"),
    [(64, 20.0, 40, True), (64, 0.3, 40, False), (64, 20.0, 0, False), (1, 20.0, 40, False)],
    ids=["late and busy", "served at once", "a queue of this moment", "full memory that one request holds"],
)
def test_metrics_alone_show_overload_by_what_the_served_had_waited(
    running: int, waited_s: float, before: int, *, is_overload: bool
) -> None:
    """A long queue in both samples, first tokens that come late, and memory that running requests account for."""
    report = make.report(
        make.instance("e", "unified", "vllm"),
        e__metrics_prev_txt=_queue(before, 500, running=running, waited_s=waited_s),
        e__metrics_txt=_queue(44, 530, running=running, waited_s=waited_s),
        e__http_toml=make.HEALTHY_GET,
    )
    assert ("PD0901" in _firm(report)) is is_overload


def test_what_moved_before_a_stop_does_not_move_now() -> None:
    """Counters grew between the samples, then prefill was stopped: its queue stands, and the probe hangs in it."""
    before, now = (
        f"sglang:num_queue_reqs 28\nsglang:num_requests_total {done}\nsglang:cuda_graph_passes_total {done}\n"
        f'sglang:realtime_tokens_total{{mode="prefill_compute"}} {done * 100}\n'
        for done in (10, 40)
    )
    report = make.report(
        make.PAIR,
        p__metrics_prev_txt=before,
        p__metrics_txt=now,
        p__process_toml='[[process]]\npid = 5\ntitle = "sglang::scheduler"\nstate = "T"\n',
        probe_toml=make.PROBE_TIMEOUT,
    )
    assert (report.verdict, _firm(report)[0]) == ("wedged", "PD0305")


def test_an_engine_that_went_silent_is_not_healthy() -> None:
    """Its peer still printed steps a moment ago, but its own endpoints hang and its metrics cannot be had any more."""
    report = make.report(
        make.PAIR,
        p__metrics_prev_txt="sglang:num_requests_total 10\n",
        p__http_toml=_MUTE,
        p__log_txt=_STEP.format(second=20).replace("Decode", "Prefill"),
        d__log_txt=_STEP.format(second=55),
        d__http_toml=make.HEALTHY_GET,
    )
    assert (report.verdict, _firm(report)) == ("unknown", [])


def test_aborts_before_a_stall_do_not_name_a_stuck_handle() -> None:
    """They fit a dead thread and parted ranks as well; a transfer must be seen to be waited for."""
    report = make.report(make.PAIR, **make.stalled_pair(), p__log_txt=make.abort_burst())
    assert "PD0304" not in _firm(report)


def test_a_model_that_is_not_ready_does_not_accuse_the_frontend() -> None:
    """Its workers live; whether they registered is not known."""
    topology = make.instance("f", "router", "dynamo", port=8000) + make.instance("w", "unified", "dynamo", host=2)
    report = make.report(
        topology,
        f__metrics_txt="dynamo_frontend_model_ready 0\n",
        f__http_toml=make.HEALTHY_GET,
        w__http_toml=make.HEALTHY_GET,
        probe_toml='[[probe]]\nat = 2026-06-19T14:29:30Z\nvia = "router"\nstatus = 503\ntook_ms = 3\n',
    )
    assert "PD0801" not in _firm(report)


@pytest.mark.parametrize(("began", "is_loading"), [("13:35", False), ("14:20", True)])
def test_a_start_without_headway_is_no_slow_load(began: str, *, is_loading: bool) -> None:
    """A node that never leads serves health checks for ever after its last line of loading."""
    log = f"[2026-06-19 {began}:00 TP8] Load weight begin. avail mem=78.49 GB\n"
    log += '[2026-06-19 14:29:58] INFO:     198.51.100.200:43898 - "GET /health HTTP/1.1" 503 Service Unavailable\n'
    report = make.report(make.instance("e", "prefill"), e__log_txt=log)
    assert any(code in ("PD0902", "PD0903") for code in _firm(report)) is is_loading
