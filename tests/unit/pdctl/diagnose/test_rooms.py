"""What the room lists of both sides say together, and what our engine says of deadlines, peers and loading."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from pdctl.diagnose.report import Report
from tests.unit.pdctl.diagnose.incident import report
from tests.unit.pdctl.diagnose.test_own_engine import PAIR, ROUTER, found, health, scrape

NOW = datetime(2026, 6, 19, 14, 30, tzinfo=UTC).timestamp()
PREFILL, DECODE = "a" * 32, "b" * 32
Leg = tuple[int, str, str | None, float, bool]
"""Room, state, reason, age in seconds, whether it was paired."""


def rooms(side: str, *legs: Leg) -> str:
    """Return rooms.json of one side, whose peer is the other."""
    own, peer, name = (PREFILL, DECODE, "d") if side == "p" else (DECODE, PREFILL, "p")
    rows = [
        {
            "request_id": f"r{room}",
            "rid": f"r{room}-0",
            "room": room,
            "role": side,
            "state": state,
            "reason": reason,
            "peer": name,
            "peer_incarnation": peer,
            "at": {"received": NOW - age_s} | ({"paired": NOW - age_s + 0.1} if is_paired else {}),
        }
        for room, state, reason, age_s, is_paired in legs
    ]
    return json.dumps({"instance": side, "incarnation": own, "now": NOW, "rooms": rows})


def process(started_at: str, **more: object) -> str:
    """Return process.toml of an instance that runs."""
    extra = "".join(f"{key} = {value}\n" for key, value in more.items())
    return f'[[process]]\npid = 1\nstate = "S"\nstarted_at = {started_at}\n{extra}'


def landed(text: str, peer: str, count: int) -> str:
    """Return metrics whose transfers landed with that peer."""
    kept = [line for line in text.splitlines() if 'result="landed"' not in line]
    return "\n".join([*kept, f'pdengine_transfers_total{{peer="{peer}",result="landed"}} {count}', ""])


def restarted(counted: int = 9, alive: bool = True, began: str = "14:29:30") -> Report:
    """Return the report on a pair whose decode is young and hears of no room, though prefill answers each."""
    waiting = scrape(queues={"room": 3}, alive=int(alive))
    return report(
        PAIR,
        p__http_toml=health(),
        d__http_toml=health(alive),
        p__process_toml=process("2026-06-19T14:00:00Z"),
        d__process_toml=process(f"2026-06-19T{began}Z"),
        p__metrics_txt=landed(scrape(queues={"held": 3}), "d", counted),
        p__metrics_prev_txt=landed(scrape(queues={"held": 3}), "d", counted),
        d__metrics_txt=landed(waiting, "p", 0),
        d__metrics_prev_txt=landed(waiting, "p", 0),
        p__rooms_json=rooms("p", *((n, "reading", None, 8.0, True) for n in range(3))),
        d__rooms_json=rooms("d", *((n, "announced", None, 8.0, False) for n in range(3))),
        p__rooms_recent_json=rooms("p", (7, "failed", "pairing_timeout", 20.0, True)),
        d__rooms_recent_json=rooms("d", (7, "failed", "pairing_timeout", 20.0, False)),
    )


def test_a_decode_that_was_restarted_and_hears_of_no_room() -> None:
    """Prefill counts transfers that this decode never made, and answers rooms that it never pairs."""
    said = restarted()
    assert found(said)[:1] == [("PD0307", "d")]
    assert "answers 4 rooms of d, which hears of none" in said.causes[0].message


@pytest.mark.parametrize(
    "other",
    [{"counted": 0}, {"alive": False}, {"began": "13:00:00"}],
    ids=["nothing was transferred before", "its thread is dead", "it is the older one"],
)
def test_what_only_looks_like_a_restart(other: dict[str, Any]) -> None:
    """The same rooms without a restart, or with another reason to hear nothing."""
    assert "PD0307" not in [code for code, _ in found(restarted(**other))]


@pytest.mark.parametrize(
    ("held", "theirs", "is_lost"),
    [
        ((5, "reading", None, 40.0, True), (5, "failed", "aborted", 30.0, True), True),
        ((5, "reading", None, 40.0, True), (6, "closed", None, 30.0, True), True),
        ((5, "reading", None, 40.0, True), (5, "closed", None, 30.0, True), False),
        ((5, "reading", None, 2.0, True), (5, "failed", "aborted", 1.0, True), False),
        ((5, "closed", None, 40.0, True), (5, "failed", "aborted", 30.0, True), False),
    ],
    ids=["failed there", "not known there", "just closed", "young", "not held"],
)
def test_a_room_that_is_held_for_nobody(held: Leg, theirs: Leg, is_lost: bool) -> None:
    """Old, and given up by a decode that lives: the failure was not told. Anything younger may just be under way."""
    busy = scrape(queues={"held": 1})
    said = report(
        PAIR,
        p__http_toml=health(),
        d__http_toml=health(),
        p__metrics_txt=busy,
        p__metrics_prev_txt=busy,
        d__metrics_txt=scrape(landed=9),
        d__metrics_prev_txt=scrape(landed=3),
        p__rooms_json=rooms("p", held),
        d__rooms_json=rooms("d"),
        p__rooms_recent_json=rooms("p"),
        d__rooms_recent_json=rooms("d", theirs),
    )
    assert (("PD0308", "p") in found(said)) == is_lost


def test_a_room_that_both_sides_hold_is_in_order() -> None:
    """However old: decode may wait for pages."""
    leg = (5, "reading", None, 400.0, True)
    said = report(
        PAIR,
        p__http_toml=health(),
        d__http_toml=health(),
        p__rooms_json=rooms("p", leg),
        d__rooms_json=rooms("d", leg),
        p__rooms_recent_json=rooms("p"),
        d__rooms_recent_json=rooms("d"),
    )
    assert "PD0308" not in [code for code, _ in found(said)]


def deadline(cut: int, whole: int) -> Report:
    """Return the report on a decode that ended some requests at its own deadline."""
    late = "not finished within its deadline of 3 s"
    legs = [(n, "failed", late, 9.0, True) for n in range(cut)]
    legs += [(100 + n, "closed", None, 9.0, True) for n in range(whole)]
    return report(
        PAIR,
        p__http_toml=health(),
        d__http_toml=health(),
        d__metrics_txt=scrape(landed=9) + "pdengine_steps_total 90\n",
        d__metrics_prev_txt=scrape(landed=3),
        d__rooms_json=rooms("d"),
        d__rooms_recent_json=rooms("d", *legs),
    )


def test_requests_that_end_at_the_engines_own_deadline() -> None:
    """A setting is too short for some of the work: named, and no wedge."""
    said = deadline(cut=4, whole=20)
    assert found(said)[:1] == [("PD0905", "d")]
    assert said.verdict == "not_a_wedge"


def test_one_late_request_is_no_finding() -> None:
    """Any service has one."""
    assert "PD0905" not in [code for code, _ in found(deadline(cut=1, whole=20))]


def test_an_engine_that_says_that_it_loads() -> None:
    """By /health, before it has printed anything."""
    loading = health().replace('"status":"ok"', '"status":"loading"').replace("status = 200", "status = 503")
    said = report(PAIR, p__http_toml=health(), d__http_toml=loading, d__process_toml=process("2026-06-19T14:29:55Z"))
    assert found(said)[:1] == [("PD0902", "d")]


def test_a_start_after_a_kill_in_its_control_group() -> None:
    """The process that was killed is gone; its group counts, and the kernel told of it just before the new start."""
    kill = "[Fri Jun 19 14:29:20 2026] Memory cgroup out of memory: Killed process 77 (python) total-vm:9kB\n"
    young = process("2026-06-19T14:29:25Z", restarts=2, cgroup_oom_kills=1)
    said = report(PAIR, d__process_toml=young, d__kernel_txt=kill, d__http_toml=health(), p__http_toml=health())
    assert ("PD0702", "d") in found(said)


@pytest.mark.parametrize(("victim", "is_named"), [(17880, True), (4711, False)])
def test_a_scheduler_that_the_kernel_killed(victim: int, is_named: bool) -> None:
    """The process is gone with its parent; the parent's last line has the pid that the kernel names."""
    kill = f"[Fri Jun 19 14:29:20 2026] Memory cgroup out of memory: Killed process {victim} (python) total-vm:9kB\n"
    last = (
        "2026-06-19T14:29:20.900 ERROR [d api] engine.instance: the scheduler process (pid 17880) was killed by "
        "SIGKILL; this instance ends\n"
    )
    gone = '[[process]]\npid = 1\nstate = "gone"\nexit_code = 1\nstarted_at = 2026-06-19T14:20:00Z\n'
    said = report(PAIR, d__process_toml=gone, d__kernel_txt=kill, d__log_txt=last, p__http_toml=health())
    assert (("PD0702", "d") in found(said)) == is_named


@pytest.mark.parametrize(("healthy", "is_blamed"), [(2, False), (0, True)])
def test_a_router_that_sees_its_workers_again(healthy: int, is_blamed: bool) -> None:
    """What it logged while a worker was away is over when it counts all of them healthy."""
    ready = json.dumps({"status": "ready", "healthy_workers": healthy, "total_workers": 2})
    lines = "".join(
        f"2026-06-19 14:29:0{n}  WARN smg: placement.rs:643: No available workers for model\n" for n in range(4)
    )
    said = report(
        PAIR + ROUTER,
        p__http_toml=health(),
        d__http_toml=health(),
        r__http_toml=f"[[get]]\npath = \"/readiness\"\nstatus = 200\ntook_ms = 5\nbody = '{ready}'\n",
        r__log_txt=lines,
        probe_toml='[[probe]]\nat = 2026-06-19T14:29:30Z\nvia = "router"\ntook_ms = 30\nstatus = 503\n',
    )
    assert ("PD0801" in [cause.code for cause in said.firm]) == is_blamed
