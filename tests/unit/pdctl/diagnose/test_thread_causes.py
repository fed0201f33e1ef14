"""What threads show: one that is missing, ranks that part, a scheduler that stands.

One small incident a mechanism: what it names, and that its look-alike is not named.
"""

from __future__ import annotations

import pytest

from tests.unit.pdctl.diagnose import incident as make

_IDLE_LOOP = "recv_pyobj@zmq/sugar/socket.py < recv_requests < event_loop_overlap_disagg_prefill"
_TRANSFERS = ("transfer_worker", "transfer_worker", "_watchdog_thread")


def test_a_missing_bootstrap_thread_is_established() -> None:
    """A scheduler that shows its other threads and lacks this one has lost it."""
    report = make.report(
        make.PAIR,
        **make.stalled_pair(),
        p__stacks_txt=make.stack(10, "sglang::scheduler", _IDLE_LOOP, *_TRANSFERS),
    )
    assert (make.first(report), make.status(report, "PD0301"), report.verdict) == ("PD0301", "established", "wedged")


def test_a_bootstrap_thread_that_runs_rules_it_out() -> None:
    """With the thread in every full dump it cannot be this, whatever the queues say."""
    stacks = make.stack(10, "sglang::scheduler", _IDLE_LOOP, "bootstrap_thread", *_TRANSFERS)
    report = make.report(make.PAIR, **make.stalled_pair(), p__log_txt=make.abort_burst(), p__stacks_txt=stacks)
    assert make.status(report, "PD0301") == "ruled_out"


def test_a_dump_of_the_main_thread_alone_proves_no_absence() -> None:
    """A dump that shows nothing else is no complete source."""
    stacks = make.stack(10, "sglang::scheduler", _IDLE_LOOP)
    report = make.report(make.PAIR, **make.stalled_pair(), p__stacks_txt=stacks)
    assert make.status(report, "PD0301") != "established"


def test_queues_and_an_abort_burst_support_a_dead_bootstrap_thread() -> None:
    """Without stacks, two kinds of sources make it supported, not established."""
    report = make.report(make.PAIR, **make.stalled_pair(), p__log_txt=make.abort_burst())
    assert make.status(report, "PD0301") == "supported"


def test_one_kind_of_source_is_not_enough() -> None:
    """The queues alone leave it a hypothesis, and the report abstains."""
    report = make.report(make.PAIR, **make.stalled_pair())
    assert report.abstains
    assert report.verdict == "wedged"


def test_a_traceback_of_a_transfer_worker() -> None:
    """The thread's own last words, while its rooms stand still."""
    log = "[2026-06-19 14:20:00 TP0] x\nException in thread Thread-4 (transfer_worker):\nIndexError: list index\n"
    report = make.report(make.PAIR, **make.stalled_pair(), p__log_txt=log)
    assert make.first(report) == "PD0302"


def test_decodes_listener_died() -> None:
    """The same on decode's side."""
    log = "[2026-06-19 14:20:00 TP0] x\nException in thread Thread-4 (decode_listener_thread):\n"
    assert make.first(make.report(make.PAIR, **make.stalled_pair(), d__log_txt=log)) == "PD0303"


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
    assert (make.first(report), report.verdict) == ("PD0501", "wedged")


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
    assert make.first(report) == "PD0601"


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
    assert (make.first(report), report.firm[0].subject.instance) == ("PD0305", "p")
