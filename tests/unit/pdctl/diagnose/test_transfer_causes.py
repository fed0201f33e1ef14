"""What two sides show together: contracts, addresses, rooms, sessions, restarts of one side.

One small incident a mechanism: what it names, and that its look-alike is not named.
"""

# ruff: noqa: E501 - lines of logs and files stand as engines print them.
from __future__ import annotations

from tests.unit.pdctl.diagnose import incident as make


def test_a_page_size_mismatch() -> None:
    """The engine names the field of the contract."""
    log = "[2026-06-19 14:29:00 TP0] RuntimeError: Page size mismatch: prefill 16, decode 64\n"
    report = make.report(make.PAIR, d__log_txt=log, p__http_toml=make.HEALTHY_GET)
    assert (make.first(report), report.firm[0].label) == ("PD0201", "handshake_misconfig")


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
    assert make.first(report) == "PD0204"


def test_a_wrong_answer_with_status_200() -> None:
    """No counter moved, and the answer is wrong."""
    probe = '[[probe]]\nvia = "router"\nstatus = 200\noutput = "garbled"\n'
    assert make.first(make.report(make.PAIR, probe_toml=probe)) == "PD0309"


def test_a_checksum_that_differs() -> None:
    """The engine compared what it sent with what arrived."""
    log = "[2026-06-19 14:29:00 TP0] KV checksum mismatch for room 5\n"
    assert make.first(make.report(make.PAIR, d__log_txt=log, d__http_toml=make.HEALTHY_GET)) == "PD0309"


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
    assert make.first(report) == "PD0308"


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
    assert make.first(report) == "PD0311"


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
    assert make.status(report, "PD0311") == "not named"


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
    assert make.first(report) == "PD0307"


def test_sides_of_one_age_rule_a_one_sided_restart_out() -> None:
    """Both began together: nobody was restarted alone."""
    process = '[[process]]\npid = 5\ntitle = "sglang::scheduler"\nstate = "S"\nstarted_at = 2026-06-17T08:00:0{0}Z\n'
    report = make.report(
        make.PAIR, **make.stalled_pair(), p__process_toml=process.format(1), d__process_toml=process.format(9)
    )
    assert make.status(report, "PD0307") == "ruled_out"


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
