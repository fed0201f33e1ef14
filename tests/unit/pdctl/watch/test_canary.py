"""When a canary is sent, and when it is evidence. The prober is a stand-in; a real one runs in tests/serving."""

from __future__ import annotations

import threading

import pytest

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.errors import Refused
from pdctl.probe import ProbeReport, ProbeResult, Verdict
from pdctl.watch.canary import BLAME_S, CHANGED_S, OVERDUE_S, RETRY_S, Canary
from pdctl.watch.ways import ways_of
from tests.unit.pdctl.watch.samples import DEPLOYMENT
from tests.waiting import eventually

EVERY_S = 30.0


class Prober:
    """Answers with a verdict, or hangs until it is let go; counts the ways."""

    def __init__(self) -> None:
        self.verdict = Verdict.PROVEN
        self.refuses = False
        self.sent: list[str] = []
        self.may_end = threading.Event()
        self.may_end.set()

    def __call__(self, deployment: Deployment, *, direct: bool, prompt_tokens: int, timeout_s: float) -> ProbeReport:
        via = " -> ".join(item.name for item in deployment.instances) if direct else "router"
        self.sent.append(via)
        assert self.may_end.wait(20)
        if self.refuses:
            raise Refused("KV memory is full", "wait")
        result = ProbeResult(
            id="i", via=via, at=0.0, verdict=self.verdict, why="because", stage=None, took_ms=5.0, timeout_ms=1.0
        )
        return ProbeReport(deployment="lab", results=(result,))


class Rig:
    """A canary with a clock that stands still."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self.prober, self.now, self.said = Prober(), 1000.0, list[str]()
        self.canary = Canary(DEPLOYMENT, every_s, self.said.append, self.prober, lambda: self.now)

    def tick(self, *, is_suspicious: bool = False, suspects: tuple[str, ...] = ()) -> list[str]:
        """Tick, let what was sent end, and return all ways so far."""
        ended = sum(self.canary.outcomes.values())
        before = len(self.prober.sent)
        self.canary.tick(is_suspicious=is_suspicious, suspects=suspects)
        eventually(lambda: len(self.prober.sent) == before or sum(self.canary.outcomes.values()) > ended)
        self.canary.close()
        return self.prober.sent

    def vias(self) -> list[tuple[str, str]]:
        return [(result.via, result.verdict.value) for result in self.canary.results]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_ways_take_turns_each_in_its_time(rig: Rig) -> None:
    """Nothing before the time has come; then the router, then the pair."""
    assert rig.tick() == []
    rig.now += EVERY_S
    assert rig.tick() == ["router"]
    assert rig.tick() == ["router"]
    rig.now += EVERY_S
    assert rig.tick() == ["router", "p -> d"]


def test_a_suspicion_is_probed_at_once_and_directly(rig: Rig) -> None:
    """A router may answer for an engine that does not."""
    assert rig.tick(is_suspicious=True, suspects=("d",)) == ["p -> d"]


def test_a_suspicion_of_an_instance_probes_only_the_ways_past_it(rig: Rig) -> None:
    """The router alone is suspected."""
    assert rig.tick(is_suspicious=True, suspects=("r",)) == ["router"]
    assert rig.tick(is_suspicious=True, suspects=("r",)) == ["router"]


def test_a_suspicion_that_stays_is_not_probed_again_and_again(rig: Rig) -> None:
    """Once in RETRY_S: more would only be load."""
    rig.prober.verdict = Verdict.NOT_PROVEN
    rig.tick(is_suspicious=True, suspects=("d",))
    rig.now += RETRY_S - 1
    assert rig.tick(is_suspicious=True, suspects=("d",)) == ["p -> d"]
    rig.now += 1
    assert rig.tick(is_suspicious=True, suspects=("d",))[:2] == ["p -> d"] * 2


def test_no_turn_passes_a_suspect() -> None:
    """A prompt more would make prefill move, and hide that decode stands; without a suspicion turns go on."""
    rig = Rig(every_s=5)
    rig.prober.verdict = Verdict.NOT_PROVEN
    rig.tick(is_suspicious=True, suspects=("d",))
    for _ in range(4):
        rig.now += 6
        assert rig.tick(is_suspicious=True, suspects=("d",)) == ["p -> d"]
    rig.now += 6
    assert len(rig.tick()) == 2


def test_never_two_at_once(rig: Rig) -> None:
    """While one waits for its answer no other is sent, whatever is due."""
    rig.prober.may_end.clear()
    rig.canary.tick(is_suspicious=True)
    eventually(lambda: rig.prober.sent)
    rig.now += 2 * EVERY_S
    rig.canary.tick(is_suspicious=True)
    assert rig.prober.sent == ["p -> d"]
    rig.prober.may_end.set()


def test_one_that_waits_for_longer_than_patience_is_evidence_already(rig: Rig) -> None:
    """It counts as unanswered until it ends, and then as what it was."""
    rig.prober.may_end.clear()
    rig.canary.tick(is_suspicious=True)
    rig.now += OVERDUE_S - 1
    assert rig.vias() == []
    rig.now += 1
    [late] = rig.canary.results
    assert (late.via, late.verdict, late.error) == ("p -> d", Verdict.NOT_PROVEN, "timeout")
    rig.prober.may_end.set()
    assert eventually(lambda: rig.vias() == [("p -> d", "proven")])


def test_a_failure_stops_to_blame_and_a_proof_to_prove_when_they_are_old(rig: Rig) -> None:
    """The failure after BLAME_S, the proof after two turns of both ways."""
    rig.prober.verdict = Verdict.NOT_PROVEN
    rig.tick(is_suspicious=True, suspects=("p",))
    rig.prober.verdict = Verdict.PROVEN
    rig.tick(is_suspicious=True, suspects=("r",))
    rig.now += BLAME_S
    assert rig.vias() == [("p -> d", "not_proven"), ("router", "proven")]
    rig.now += 1
    assert rig.vias() == [("router", "proven")]
    assert [result.via for result in rig.canary.last] == ["p -> d", "router"]
    rig.now += 2 * 2 * EVERY_S
    assert rig.vias() == []
    # Its turn may come later than an alarm waits: until then it is the last that is known of this way.
    assert [result.via for result in rig.canary.last] == ["p -> d"]


def test_a_failure_past_an_instance_that_has_changed_is_forgotten_and_probed_anew(rig: Rig) -> None:
    """What failed before the restart tells nothing of the new process; what passed stays."""
    rig.prober.verdict = Verdict.NOT_PROVEN
    rig.tick(is_suspicious=True, suspects=("d",))
    rig.canary.forget({"r"})
    assert rig.vias() == [("p -> d", "not_proven")]
    rig.canary.forget({"d"})
    assert rig.vias() == []
    assert rig.tick(is_suspicious=True, suspects=("d",)) == ["p -> d"] * 2


def test_what_passed_before_an_instance_changed_is_probed_again_soon(rig: Rig) -> None:
    """A canary that passed a moment before decode was stopped must not hide that for RETRY_S."""
    rig.tick(is_suspicious=True, suspects=("d",))
    rig.now += 1
    rig.canary.forget({"d"})
    assert rig.tick(is_suspicious=True, suspects=("d",)) == ["p -> d"]
    rig.now += CHANGED_S - 1
    assert rig.tick(is_suspicious=True, suspects=("d",)) == ["p -> d"] * 2
    assert rig.vias() == [("p -> d", "proven")]


def test_a_refusal_is_counted_and_told_once(rig: Rig) -> None:
    """KV memory is full: none was sent, and the log says why, not every time."""
    rig.prober.refuses = True
    for _ in range(3):
        rig.now += EVERY_S
        rig.tick()
    assert rig.canary.outcomes["skipped"] == 3
    assert len([line for line in rig.said if "router" in line]) == 1
    assert rig.vias() == []


def test_engines_that_serve_alone_are_ways_of_their_own() -> None:
    """Without a router each unified engine is asked itself."""
    alone = tuple(Instance(name=f"u{i}", role=Role.UNIFIED, dialect="pdctl", url=f"http://h:{i}") for i in (1, 2))
    ways = ways_of(Deployment(name="lab", model="m", instances=alone))
    assert [(way.via, way.direct, [item.name for item in way.deployment.instances]) for way in ways] == [
        ("u1", False, ["u1"]),
        ("u2", False, ["u2"]),
    ]
