"""What counts as proven, and which counters must stand still."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.evidence.exposition import parse_exposition
from pdctl.recover import verification
from pdctl.recover.failure_counters import risen, totals_of
from pdctl.recover.ledger import Outcome
from pdctl.recover.states import ask, last_healthy
from pdctl.recover.verification import Proof, Verification, verify
from tests.fakes.engine_pair import FakePair, fake_pair
from tests.fakes.http_server import Reply, Request

GOOD = Proof(via="p -> d", passed=5, sent=5, why="", took_s=1.0)
BAD = Proof(via="p -> d", passed=4, sent=5, why="timeout", took_s=1.0)
NONE = Proof(via="p -> d", passed=0, sent=0, why="refused", took_s=1.0)


@pytest.mark.parametrize(("pairs", "router", "failures", "outcome"), [
    ((GOOD,), GOOD, (), Outcome.RECOVERED),
    ((GOOD, GOOD), None, (), Outcome.RECOVERED),
    ((GOOD, BAD), GOOD, (), Outcome.NOT_VERIFIED),
    ((NONE,), GOOD, (), Outcome.NOT_VERIFIED),
    ((GOOD,), BAD, (), Outcome.ROUTER),
    ((GOOD,), GOOD, ("decode-0: transfers_failed grew by 1",), Outcome.NOT_VERIFIED),
    ((), GOOD, (), Outcome.RECOVERED),
    ((), BAD, (), Outcome.NOT_VERIFIED),
    ((), None, (), Outcome.NOT_VERIFIED),
])  # fmt: skip
def test_outcome(pairs: tuple[Proof, ...], router: Proof | None, failures: tuple[str, ...], outcome: Outcome) -> None:
    """Every pair, the router and still counters; nothing sent proves nothing."""
    assert Verification(pairs=pairs, router=router, failures=failures).outcome is outcome


def test_failure_counters_of_our_engine() -> None:
    """Only failed transfers count, summed over the peers; done ones do not."""
    text = (
        b'pdengine_transfers_total{peer="a",result="peer_gone"} 3.0\n'
        b'pdengine_transfers_total{peer="b",result="read_failed"} 4.0\n'
        b'pdengine_transfers_total{peer="a",result="landed"} 90.0\n'
    )
    exposition, _ = parse_exposition(text, "x")
    assert exposition is not None
    decode = Instance(name="d", role=Role.DECODE, dialect="pdctl", url="http://127.0.0.1:1")
    assert totals_of(decode, exposition) == {"transfers_failed": 7.0}


def test_risen_counters_are_named_and_unread_ones_say_nothing() -> None:
    """A side that did not answer before is not held against zero."""
    from pdctl.dialects.signals import Counter

    before = {"a": {Counter.TRANSFERS_FAILED: 2.0}}
    after = {"a": {Counter.TRANSFERS_FAILED: 5.0}, "b": {Counter.TRANSFERS_FAILED: 9.0}}
    assert risen(before, after) == ("a: transfers_failed grew by 3",)


def serving(pair: FakePair) -> Deployment:
    """Return the deployment, with the chunk size of its prefill told."""
    pair.prefill.routes["/server_info"] = Reply({"incarnation": "0" * 32, "chunk_tokens": 64})
    pair.router.routes["/readiness"] = Reply({})
    pair.decode.routes["/metrics"] = pair.prefill.routes["/metrics"] = Reply(b"pdengine_steps_total 1\n")
    return pair.deployment()


def test_a_pair_gets_five_requests_two_at_once_one_of_several_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen by decode itself; the router gets two more."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    two_at_once = threading.Barrier(2)
    prompts: list[int] = []
    with fake_pair() as pair:
        serve = pair.decode.routes["/generate"]

        def first_two_wait(request: Request) -> Reply:
            prompts.append(len(str(request.json()["text"]).split()))
            if len(prompts) <= 2:
                two_at_once.wait(timeout=20)  # breaks, and fails the request, unless two are there together
            return serve(request)  # type: ignore[operator, no-any-return]

        pair.decode.routes["/generate"] = first_two_wait
        found = verify(
            serving(pair), ["decode-0"], tmp_path / "locks", timeout_s=20, say=lambda line: None, pause=lambda s: None
        )
    assert found.problem() is None
    assert (found.pairs[0].sent, found.pairs[0].passed) == (5, 5)
    assert found.router is not None
    assert (found.router.sent, found.router.passed) == (2, 2)
    assert len(prompts) == 5
    assert sum(words > 2 * 64 for words in prompts) == 1


def test_wrong_tokens_of_one_request_are_not_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP 200 with garbled output does not pass, and the router is not even asked."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with fake_pair(gaps=[0.0, 3.0, 0.0]) as pair:
        found = verify(
            serving(pair), ["decode-0"], tmp_path / "locks", timeout_s=20, say=lambda line: None, pause=lambda s: None
        )
    assert found.outcome is Outcome.NOT_VERIFIED
    assert found.router is None
    assert "not the model's choice" in str(found.problem())


def test_settling_time_is_waited_for_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure that is counted only afterwards makes the verification fail."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with fake_pair() as pair:
        deployment = serving(pair)
        failed = b'pdengine_transfers_total{peer="a",result="peer_gone"} %d\n'
        pair.decode.routes["/metrics"] = Reply(failed % 1)

        def pause(seconds: float) -> None:
            if seconds <= verification.SETTLE_S:
                pair.decode.routes["/metrics"] = Reply(failed % 2)

        found = verify(deployment, ["decode-0"], tmp_path / "locks", timeout_s=20, say=lambda line: None, pause=pause)
    assert found.outcome is Outcome.NOT_VERIFIED
    assert found.failures == ("decode-0: transfers_failed grew by 1",)


def test_last_healthy_is_who_passed_a_request_whatever_health_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pair serves: restarting decode would take the last one. It does not: nobody is healthy, both are silent."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with fake_pair() as pair:
        deployment = serving(pair)
        serves = ask(deployment, (), 20, lambda line: None)
        assert last_healthy(deployment, ["decode-0"], serves.healthy) == ("decode-0",)
        assert serves.silent == set()
        pair.decode.routes["/health"] = Reply({"ok": True})
        pair.decode.routes["/generate"] = Reply({"error": {"message": "wedged"}}, status=503)
        wedged = ask(deployment, (), 20, lambda line: None)
    assert last_healthy(deployment, ["decode-0"], wedged.healthy) == ()
    assert wedged.silent == {"prefill-0", "decode-0"}
