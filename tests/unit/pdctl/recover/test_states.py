"""How long an instance will be away, by what is on record of it; and who has nothing to finish."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.diagnose.report import PairState
from pdctl.probe import Verdict
from pdctl.recover import states
from pdctl.recover.ledger import Entry, Recovery, Step
from pdctl.recover.states import ask, last_healthy, start_to_ready_s


def recovery(name: str, **took_s: float | None) -> Recovery:
    """Return a recovery whose instances were ready after so many seconds; None: not known."""
    entries = [
        Entry(recovery=name, at=0.0, step=Step.READY, by="x", instance=one.replace("_", "-"), took_s=took)
        for one, took in took_s.items()
    ]
    return Recovery(name, tuple(entries))


HISTORY = (
    recovery("r1", prefill_0=9.0, decode_0=30.0),
    recovery("r2", decode_0=7.0),
    recovery("r3", router=1.0),
    recovery("r4", decode_0=None),
)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("prefill-0",), 9.0),
        (("decode-0",), 7.0),
        (("prefill-0", "decode-0"), 9.0),
        (("prefill-0", "decode-1"), None),
        ((), 0.0),
    ],
)
def test_outage_is_the_last_start_to_ready_of_the_slowest(names: tuple[str, ...], expected: float | None) -> None:
    """The newest that is known of each; where one of them never started on record, nothing is promised."""
    assert start_to_ready_s(HISTORY, names) == expected


def test_silent_is_only_who_lets_no_request_through_in_any_of_its_pairs() -> None:
    """A pair that fails half of its requests may finish the other half; nothing is sent to what stands or fails."""
    names = (("prefill-0", Role.PREFILL), ("decode-0", Role.DECODE), ("decode-1", Role.DECODE))
    engines = tuple(Instance(name=name, role=role, dialect="pdctl", url="http://127.0.0.1:1") for name, role in names)
    deployment = Deployment(name="d", model="m", instances=engines)
    seen = [
        PairState(prefill="prefill-0", decode=decode, state=state)
        for decode, state in (("decode-0", "stalled"), ("decode-1", "failing"))
    ]
    told: list[str] = []
    found = ask(deployment, seen, 1.0, told.append)
    assert (found.healthy, found.silent, told) == (set(), {"decode-0"}, [])


def test_engine_that_serves_alone_is_asked_alone_and_is_the_last_of_its_role(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart of it takes service down just as that of the only decode would."""
    engine = Instance(name="unified-0", role=Role.UNIFIED, dialect="pdctl", url="http://127.0.0.1:1")
    deployment = Deployment(name="d", model="m", instances=(engine,))
    asked: list[tuple[tuple[str, ...], bool]] = []

    def proven(deployment: Deployment, *, direct: bool, timeout_s: float, progress: object) -> SimpleNamespace:
        asked.append((tuple(one.name for one in deployment.instances), direct))
        return SimpleNamespace(verdict=Verdict.PROVEN)

    monkeypatch.setattr(states, "prove", proven)
    found = ask(deployment, (), 1.0, lambda line: None)
    assert asked == [(("unified-0",), False)]
    assert last_healthy(deployment, ("unified-0",), found.healthy) == ("unified-0",)
