"""Instances that somebody else restarts: told, waited for, and only then proven."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.recover.elsewhere import Elsewhere, command_of, identity
from pdctl.recover.ledger import Ledger, Outcome, Step
from pdctl.recover.plan import Plan, Target
from tests.fakes.http_server import FakeServer, Reply


@pytest.fixture
def engine() -> Iterator[FakeServer]:
    """An engine that tells its incarnation and is well."""
    with FakeServer() as server:
        server.routes |= {"/health": Reply({"ok": True}), "/server_info": Reply({"incarnation": "old"})}
        yield server


def instance(url: str, **more: object) -> Instance:
    """Return an instance that pdctl does not run."""
    return Instance(name="decode-0", role=Role.DECODE, dialect="sglang", url=url, **more)  # type: ignore[arg-type]


def carried_out(folder: Path, item: Instance, pauses: Iterator[object]) -> tuple[Outcome, str, list[str]]:
    """Carry a plan out; each pause takes a step of `pauses`, and a second of the clock."""
    said: list[str] = []
    seconds = iter(range(1000))

    def pause(wanted_s: float) -> None:
        next(pauses, None)

    elsewhere = Elsewhere(Ledger(folder), "r", said.append, pause=pause, clock=lambda: next(seconds))
    plan = Plan(
        id="r", deployment=Deployment(name="d", model="m", instances=(item,)), targets=(Target(instance=item),),
        drain_s=1, ready_timeout_s=5,
    )  # fmt: skip
    elsewhere.hand_over(plan)
    outcome, detail = elsewhere.until_executed()
    return outcome, detail, said


def test_new_incarnation_that_is_well_ends_the_wait(tmp_path: Path, engine: FakeServer) -> None:
    """Not before: the old one is well too."""

    def restarted() -> Iterator[None]:
        yield
        engine.routes["/server_info"] = Reply({"incarnation": "new"})
        yield

    outcome, detail, said = carried_out(tmp_path, instance(engine.url, unit="pd@d0.service"), restarted())
    assert (outcome, detail) == (Outcome.STARTED, "")
    assert said[-1] == "  systemctl restart pd@d0.service"
    executed = Ledger(tmp_path).recovery("r").last(Step.EXECUTED)
    assert executed is not None
    assert executed.outcome is Outcome.STARTED


def test_old_process_is_named_when_time_is_over(tmp_path: Path, engine: FakeServer) -> None:
    """Nobody restarted it: not ready, and nothing is claimed."""
    outcome, detail, _ = carried_out(tmp_path, instance(engine.url), iter(()))
    assert outcome is Outcome.NOT_READY
    assert detail == "not restarted and well within 5 s: decode-0: still the old process"


def test_old_process_that_answers_again_is_not_the_new_one(tmp_path: Path, engine: FakeServer) -> None:
    """It hung too much to say who it was; only a process that started after the words is another one."""
    engine.routes |= {"/server_info": Reply({}, status=503), "/metrics": Reply(b"", status=503)}
    item = instance(engine.url)

    def answers(started_at: float) -> Iterator[None]:
        yield
        engine.routes["/metrics"] = Reply(f"process_start_time_seconds {started_at}\n".encode())
        yield

    assert carried_out(tmp_path, item, answers(time.time() - 3600))[0] is Outcome.NOT_READY
    engine.routes["/metrics"] = Reply(b"", status=503)
    assert carried_out(tmp_path, item, answers(time.time() + 60))[0] is Outcome.STARTED


def test_new_but_unwell_is_waited_for(tmp_path: Path, engine: FakeServer) -> None:
    """Its own words are passed on."""
    engine.routes["/health"] = Reply({"problems": ["loading"]}, status=503)
    outcome, detail, _ = carried_out(tmp_path, instance(engine.url), iter(()))
    assert (outcome, detail.endswith("decode-0: 503: loading")) == (Outcome.NOT_READY, True)


def test_start_time_tells_where_no_incarnation_does(engine: FakeServer) -> None:
    """Every Prometheus client in Python exports it."""
    engine.routes["/server_info"] = Reply({"version": "0.5"})
    engine.routes["/metrics"] = Reply(b"process_start_time_seconds 1.7e9\n")
    assert identity(instance(engine.url)) == "1700000000.000"


def test_command_is_as_exact_as_the_file_allows() -> None:
    """A unit, an argv with its quoting, or only the place."""
    assert command_of(instance("http://h:1", unit="u.service", host="ssh:gpu7")) == (
        "systemctl restart u.service   # on ssh:gpu7"
    )
    assert command_of(instance("http://h:1", start=("vllm", "serve", "a b"))) == "stop decode-0, then: vllm serve 'a b'"
    assert command_of(instance("http://h:1")) == "restart decode-0 (http://h:1) the way it was started"
