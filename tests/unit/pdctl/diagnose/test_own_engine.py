"""What our own engine says plainly is used: its threads, its pages by owner, its checksums."""

from __future__ import annotations

from typing import Any

import pytest

from engine.transfer.interface import FailReason
from pdctl.diagnose.report import Report
from pdctl.dialects.pdctl_signals import FAILED_ROOMS
from tests.unit.pdctl.diagnose.incident import instance, report

_PREFILL = instance("p", "prefill", "pdctl", host=1, more="bootstrap_port = 8998")
PAIR = _PREFILL + instance("d", "decode", "pdctl", host=2)
ROUTER = instance("r", "router", "smg", host=3)
PHASES = ("room", "waiting", "pages", "reading", "prompt", "decoding", "held", "ending")
OWNERS = ("free", "cached", "running", "held_for_peer", "reading", "fencing", "pinned")


def health(alive: bool = True, thread: str = "transfer-control") -> str:
    """Return http.toml of an engine with one thread of that state."""
    status, word = (200, "ok") if alive else (503, "unfit")
    problems = "" if alive else f'"thread {thread} is down"'
    body = f'{{"status":"{word}","problems":[{problems}],"threads":{{"{thread}":{str(alive).lower()}}}}}'
    return f"[[get]]\npath = \"/health\"\nstatus = {status}\ntook_ms = 5\nbody = '{body}'\n"


def scrape(
    pages: dict[str, int] | None = None, queues: dict[str, int] | None = None, age_s: float = 0, **more: float
) -> str:
    """Return metrics of an engine with 64 pages; `more` is alive, restarts (of its control thread), landed, damaged."""
    held, waiting = pages or {}, queues or {}
    free = 64 - sum(held.values())
    lines = ['pdengine_pages{owner="total"} 64']
    lines += [f'pdengine_pages{{owner="{name}"}} {free if name == "free" else held.get(name, 0)}' for name in OWNERS]
    lines += [f'pdengine_queue_length{{queue="{name}"}} {waiting.get(name, 0)}' for name in PHASES]
    lines += [f'pdengine_queue_oldest_age_seconds{{queue="pages"}} {age_s}', "pdengine_steps_total 7"]
    lines += [f'pdengine_http_generations{{stream="true"}} {sum(waiting.values())}']
    lines += [f'pdengine_thread_alive{{thread="transfer-control"}} {more.get("alive", 1)}']
    lines += [f'pdengine_thread_restarts_total{{thread="transfer-control"}} {more.get("restarts", 0)}']
    lines += [f'pdengine_transfers_total{{peer="x",result="landed"}} {more.get("landed", 3)}']
    lines += [f'pdengine_transfers_total{{peer="x",result="checksum_mismatch"}} {more.get("damaged", 0)}']
    return "\n".join([*lines, 'pdengine_requests_total{result="stop"} 3', ""])


def found(said: Report) -> list[tuple[str, str]]:
    """Return code and instance of the established causes."""
    return [(cause.code, cause.subject.instance) for cause in said.causes if cause.confidence == "established"]


@pytest.mark.parametrize(
    ("name", "thread", "code"),
    [
        ("p", "transfer-control", "PD0301"),
        ("d", "transfer-control", "PD0303"),
        ("p", "transfer-nixl", "PD0302"),
        ("d", "transfer-nixl", "PD0302"),
    ],
)
def test_a_dead_thread_in_the_health_report(name: str, thread: str, code: str) -> None:
    """Each thread of the transfer path has its code, on the side it died on, and its name in the message."""
    files = {"p__http_toml": health(), "d__http_toml": health()}
    dead = {f"{name}__http_toml": health(False, thread), f"{name}__http_prev_toml": health(False, thread)}
    said = report(PAIR, **{**files, **dead})
    assert found(said) == [(code, name)]
    assert thread in said.causes[0].message


def test_a_dead_thread_in_the_metrics_alone() -> None:
    """pdengine_thread_alive 0 proves it where nobody asked /health and a request hangs."""
    probe = '[[probe]]\nvia = "router"\ntook_ms = 20000\ntimeout_ms = 20000\nerror = "timeout"\n'
    said = report(PAIR, p__metrics_txt=scrape(alive=0), d__metrics_txt=scrape(), probe_toml=probe)
    assert found(said) == [("PD0301", "p")]


def test_a_thread_that_crashes_again_and_again() -> None:
    """A thread that is up at the moment, with two more restarts than before, does not do its work."""
    probe = '[[probe]]\nvia = "router"\ntook_ms = 20000\ntimeout_ms = 20000\nerror = "timeout"\n'
    files = {"p__metrics_txt": scrape(restarts=6), "p__metrics_prev_txt": scrape(restarts=4)}
    assert found(report(PAIR, probe_toml=probe, **files)) == [("PD0301", "p")]


def test_a_thread_that_is_just_being_restarted_proves_nothing() -> None:
    """Alive before, down now, one restart more: its supervisor is at it."""
    files: dict[str, Any] = {
        "p__http_toml": health(False),
        "p__http_prev_toml": health(),
        "p__metrics_txt": scrape(alive=0, restarts=1),
        "p__metrics_prev_txt": scrape(),
    }
    assert found(report(PAIR, **files)) == []


@pytest.mark.parametrize("is_fit", [True, False])
def test_a_router_is_not_blamed_while_an_engine_says_that_it_is_unfit(is_fit: bool) -> None:
    """A list without workers is the router's fault only while every engine calls itself fit."""
    empty = '[[get]]\npath = "/workers"\nstatus = 200\nbody = \'{"workers":[]}\'\n'
    probe = '[[probe]]\nvia = "router"\nstatus = 503\ntook_ms = 5\n'
    files = {"p__http_toml": health(is_fit), "d__http_toml": health(), "r__http_toml": empty, "probe_toml": probe}
    assert found(report(PAIR + ROUTER, **files)) == ([("PD0801", "r")] if is_fit else [("PD0301", "p")])


def test_pages_that_wait_for_the_end_of_an_aborted_transfer() -> None:
    """PD0304: the same pages fence two minutes, and nothing lands."""
    scrapes = {"d__metrics_txt": scrape({"fencing": 8}), "d__metrics_prev_txt": scrape({"fencing": 6})}
    said = report(PAIR, p__http_toml=health(), d__http_toml=health(), **scrapes)
    assert found(said) == [("PD0304", "d")]
    assert "6 pages" in said.causes[0].message


def test_fences_beside_transfers_that_land_are_work() -> None:
    """Clients leave all the time on a busy system: its fences end."""
    scrapes = {"d__metrics_txt": scrape({"fencing": 8}, landed=9), "d__metrics_prev_txt": scrape({"fencing": 6})}
    assert found(report(PAIR, p__http_toml=health(), d__http_toml=health(), **scrapes)) == []


@pytest.mark.parametrize("owner", ["running", "held_for_peer", "reading"])
def test_pages_without_a_request_are_a_leak(owner: str) -> None:
    """PD0403: pages of requests, and no request in any phase."""
    scrapes = {"p__metrics_txt": scrape({owner: 25}), "p__metrics_prev_txt": scrape({owner: 25})}
    assert found(report(PAIR, p__http_toml=health(), **scrapes)) == [("PD0403", "p")]


@pytest.mark.parametrize(("moved_s", "is_leak"), [(2.0, True), (0.000_002, False)])
def test_pages_that_a_step_may_still_write_to_are_no_leak(moved_s: float, is_leak: bool) -> None:
    """A client that left during a long step, or one that hangs: the pages are freed when the step is done."""
    said = report(PAIR, d__http_toml=health(), **moved_by(moved_s, scrape({"running": 4})))
    assert (("PD0403", "d") in found(said)) is is_leak


def moved_by(seconds: float, metrics: str) -> dict[str, str]:
    """Return both scrapes of a decode whose loop moved so much between them, two minutes apart."""
    moved = "pdengine_last_progress_timestamp_seconds 17959966{:.6f}\n"
    return {
        "d__metrics_txt": metrics + moved.format(10 + seconds),
        "d__metrics_prev_txt": metrics + moved.format(10),
    }


@pytest.mark.parametrize(("seconds", "verdict"), [(120.0, "unknown"), (0.000_002, "wedged")])
def test_a_loop_that_stands_in_a_step_is_stalled_work(seconds: float, verdict: str) -> None:
    """Also when every client has left and all queues are empty; an idle loop turns all the time."""
    said = report(PAIR, p__http_toml=health(), d__http_toml=health(), **moved_by(seconds, scrape()))
    assert said.verdict == verdict
    assert [row.unit for row in said.symptoms] == (["loop"] if verdict == "wedged" else [])


FAILED = '[[file]]\nname = "metrics.txt"\nstatus = "timeout"\nerror = "no answer within 4 s"\n'
"""The newest scrape failed on a busy machine, and the file is that of an earlier sample, of no known age."""


def test_a_scrape_of_before_shows_no_standing_loop() -> None:
    """It may have been taken a moment after the one before it."""
    files = moved_by(0.000_002, scrape())
    said = report(PAIR, p__http_toml=health(), d__http_toml=health(), d__capture_toml=FAILED, **files)
    assert "loop" not in [row.unit for row in said.symptoms]


@pytest.mark.parametrize(("capture", "symptom"), [({}, "stalled"), ({"d__capture_toml": FAILED}, "suspected")])
def test_work_that_stands_by_a_scrape_of_before_is_only_suspected(capture: dict[str, str], symptom: str) -> None:
    """Two decode between two scrapes without a step: how far apart these are decides."""
    same = scrape(queues={"decoding": 2}) + 'pdengine_queue_oldest_age_seconds{queue="decoding"} 300\n'
    said = report(PAIR, d__http_toml=health(), d__metrics_txt=same, d__metrics_prev_txt=same, **capture)
    assert {row.symptom for row in said.symptoms if row.unit == "running"} == {symptom}


@pytest.mark.parametrize("queues", [{"held": 1}, {"ending": 1}])
def test_pages_of_a_request_are_no_leak(queues: dict[str, int]) -> None:
    """A request in any phase may hold them."""
    scrapes = {"p__metrics_txt": scrape({"held_for_peer": 25}, queues), "p__metrics_prev_txt": scrape()}
    assert ("PD0403", "p") not in found(report(PAIR, p__http_toml=health(), **scrapes))


@pytest.mark.parametrize("owner", ["cached", "pinned"])
def test_cached_pages_are_no_leak(owner: str) -> None:
    """The prefix cache keeps pages for later requests by design."""
    scrapes = {"p__metrics_txt": scrape({owner: 25}), "p__metrics_prev_txt": scrape({owner: 25})}
    assert found(report(PAIR, p__http_toml=health(), **scrapes)) == []


@pytest.mark.parametrize(
    ("pages", "queues", "is_starved"),
    [
        ({}, {"pages": 2}, True),
        ({"reading": 40}, {"pages": 2, "reading": 1}, False),
        ({"running": 20}, {"pages": 2, "decoding": 1}, False),
    ],
)
def test_a_wait_beside_free_pages(pages: dict[str, int], queues: dict[str, int], is_starved: bool) -> None:
    """PD0402: most pages are free and nothing runs that would free the others; else the wait has a reason."""
    scrapes = {"d__metrics_txt": scrape(pages, queues, 40), "d__metrics_prev_txt": scrape(pages, queues, 4)}
    said = report(PAIR, p__http_toml=health(), d__http_toml=health(), **scrapes)
    assert (("PD0402", "d") in found(said)) is is_starved


def test_wrong_checksums_that_rise() -> None:
    """PD0309: the engine compared what arrived with what was sent."""
    scrapes = {"d__metrics_txt": scrape(damaged=2), "d__metrics_prev_txt": scrape()}
    said = report(PAIR, p__http_toml=health(), d__http_toml=health(), **scrapes)
    assert found(said)[0] == ("PD0309", "d")


def test_the_table_knows_every_reason_of_the_engine() -> None:
    """A reason that the engine adds later must be put on one side or the other."""
    assert {*FAILED_ROOMS, "aborted", "draining"} == {reason.value for reason in FailReason}


KILL = (
    "[Fri Jun 19 14:29:00 2026] Memory cgroup out of memory: Killed process {pid} (python) total-vm:9kB, anon-rss:8kB\n"
)
RUNNING = '[[process]]\npid = 100\nstate = "S"\nstarted_at = 2026-06-19T14:20:00Z\n'


def test_a_stranger_that_was_killed_for_memory_explains_nothing() -> None:
    """The kernel's messages are the host's: another process than ours was killed, and our dead thread is named."""
    said = report(
        PAIR,
        p__http_toml=health(alive=False),
        p__metrics_txt=scrape(queues={"room": 3}, alive=0),
        p__metrics_prev_txt=scrape(queues={"room": 3}, alive=0),
        d__http_toml=health(),
        p__process_toml=RUNNING,
        d__process_toml=RUNNING.replace("100", "200"),
        p__kernel_txt=KILL.format(pid=4711),
        d__kernel_txt=KILL.format(pid=4711),
    )
    assert found(said)[:1] == [("PD0301", "p")]
    assert "PD0702" not in [code for code, _ in found(said)]


@pytest.mark.parametrize("pid", [100, 4711])
def test_a_process_of_ours_that_was_killed_for_memory(pid: int) -> None:
    """Known by its pid, else by nothing."""
    gone = RUNNING.replace('"S"', '"gone"') + "signal = 9\n"
    said = report(PAIR, p__process_toml=gone, p__kernel_txt=KILL.format(pid=pid), d__http_toml=health())
    assert ("PD0702" in [code for code, _ in found(said)]) == (pid == 100)
