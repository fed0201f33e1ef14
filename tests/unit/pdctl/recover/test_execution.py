"""Carrying a plan out, with a manager whose processes do what a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.errors import NotProven, PdctlError
from pdctl.managers.sight import Sight
from pdctl.managers.unkillable import Unkillable
from pdctl.recover.drift import Drift
from pdctl.recover.execution import Execution
from pdctl.recover.ledger import Entry, Ledger, Notes, Outcome, Step
from pdctl.recover.plan import Fate, Plan, Target, folder_of, settle

PREFILL = Instance(name="prefill-0", role=Role.PREFILL, dialect="pdctl", url="http://127.0.0.1:1", start=("p",))
DECODE = Instance(name="decode-0", role=Role.DECODE, dialect="pdctl", url="http://127.0.0.1:2", start=("d",))


def running(name: str, pid: int) -> Sight:
    """Return the sight of a live process."""
    return Sight(words="running", is_running=True, pid=pid, run=f"run-{pid}", started_at=1.0)


DOWN = Sight(words="stopped")


@dataclass
class Processes:
    """A manager. `calls` is what was asked of it, in order."""

    seen: dict[str, Sight]
    unkillable: tuple[str, ...] = ()
    unstartable: tuple[str, ...] = ()
    unstoppable: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    """Of whom nothing can be seen once they were asked to stop."""
    calls: list[str] = field(default_factory=list)

    def look(self, name: str) -> Sight:
        if name in self.lost and f"term {name}" in self.calls:
            raise PdctlError("ssh:gpu7 cannot be reached")
        return self.seen[name]

    def ask_to_stop(self, name: str) -> None:
        self.calls.append(f"term {name}")
        if name in self.unstoppable:
            raise PdctlError(f"cannot stop {name}: access denied")

    def await_stopped(self, name: str, deadline_s: float) -> bool:
        self.calls.append(f"wait {name}")
        if name in self.unkillable:
            raise Unkillable(f"{name} survives SIGKILL", "replace the host")
        self.look(name)
        self.seen[name] = DOWN
        return False

    def start(self, target: Target) -> Sight:
        self.calls.append(f"start {target.name}")
        if target.name in self.unstartable:
            raise PdctlError(f"cannot start {target.name}")
        self.seen[target.name] = running(target.name, 77)
        return self.seen[target.name]

    def last_words(self, name: str) -> str:
        return ""

    def problems(self, instance: Instance) -> tuple[str, ...]:
        return ()

    def drift(self, instance: Instance) -> tuple[Drift, ...]:
        return ()

    def stopped_with(self, name: str) -> tuple[str, ...]:
        return ()


@dataclass
class Rig:
    """A plan for prefill (pid 10) and decode (pid 20), and what is there."""

    folder: Path
    processes: Processes = field(
        default_factory=lambda: Processes({"prefill-0": running("prefill-0", 10), "decode-0": running("decode-0", 20)})
    )
    said: list[str] = field(default_factory=list)
    ledger: Ledger = field(init=False)
    never_well: bool = False

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.folder)
        folder_of(self.folder, "r").mkdir(parents=True)

    def run(self) -> Outcome:
        """Execute."""
        targets = (
            Target(instance=PREFILL, pid=10, run="run-10"),
            Target(instance=DECODE, pid=20, run="run-20"),
        )
        deployment = Deployment(name="d", model="m", instances=(PREFILL, DECODE))
        plan = Plan(id="r", deployment=deployment, targets=targets, drain_s=5, ready_timeout_s=5)
        return Execution(plan, self.ledger, self.processes, self._settle, self._wait, self.said.append).run()

    def _settle(self, wish: Fate) -> Fate:
        return settle(self.folder, "r", wish)

    def _wait(self, targets: Sequence[Target], on_ready: Callable[[str], None]) -> None:
        if self.never_well:
            raise NotProven("not well after 5 s", "see the log")
        for target in targets:
            on_ready(target.name)

    def steps(self) -> list[str]:
        """Return what the ledger says."""
        return [f"{entry.step} {entry.instance}".strip() for entry in self.ledger.recovery("r").entries]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_all_are_asked_before_any_is_waited_for_and_prefill_starts_first(rig: Rig) -> None:
    """Together down, prefill then decode up."""
    assert rig.run() is Outcome.STARTED
    assert rig.processes.calls == [
        "term prefill-0", "term decode-0", "wait prefill-0", "wait decode-0", "start prefill-0", "start decode-0",
    ]  # fmt: skip


def test_ledger_names_each_step_before_it_is_done(rig: Rig) -> None:
    """At each call the step is already on the disk."""
    calls: list[tuple[str, str]] = []
    stop, start = rig.processes.ask_to_stop, rig.processes.start

    def stopping(name: str) -> None:
        calls.append(("term", rig.steps()[-1]))
        stop(name)

    def starting(target: Target) -> Sight:
        calls.append(("start", rig.steps()[-1]))
        return start(target)

    rig.processes.ask_to_stop = stopping  # type: ignore[method-assign]
    rig.processes.start = starting  # type: ignore[method-assign]
    rig.run()
    assert calls == [
        ("term", "stopping"), ("term", "stopping"), ("start", "starting prefill-0"), ("start", "starting decode-0"),
    ]  # fmt: skip


def test_target_restarted_meanwhile_is_left_alone_and_its_operator_named(rig: Rig) -> None:
    """Another pid or start time: nothing is signalled, and the ledger says by whom."""
    rig.processes.seen["decode-0"] = running("decode-0", 21)
    rig.ledger.append(Entry(recovery="other", at=1, step=Step.STARTED, by="bob@here pid 5", instance="decode-0"))
    assert rig.run() is Outcome.REFUSED
    assert rig.processes.calls == []
    executed = rig.ledger.recovery("r").last(Step.EXECUTED)
    assert executed is not None
    assert executed.detail == ("decode-0 was restarted meanwhile by bob@here pid 5 (other): it is pid 21, was 20")


def test_target_that_died_meanwhile_is_started(rig: Rig) -> None:
    """Its end is what stopping it would have come to."""
    rig.processes.seen["decode-0"] = DOWN
    assert rig.run() is Outcome.STARTED
    assert "start decode-0" in rig.processes.calls


def test_nothing_is_started_beside_what_survives_sigkill(rig: Rig) -> None:
    """The plan ends there; the ledger says which."""
    rig.processes.unkillable = ("decode-0",)
    assert rig.run() is Outcome.UNKILLABLE
    assert not [call for call in rig.processes.calls if call.startswith("start")]
    executed = rig.ledger.recovery("r").last(Step.EXECUTED)
    assert executed is not None
    assert executed.detail == "decode-0 survives SIGKILL; nothing is started beside it; replace the host"


def test_one_that_is_lost_from_sight_does_not_keep_the_others_down(rig: Rig) -> None:
    """Its host is unreachable while it stops: that is no process which survives SIGKILL. The others start."""
    rig.processes.lost = ("prefill-0",)
    assert rig.run() is Outcome.NOT_READY
    assert [call for call in rig.processes.calls if call.startswith("start")] == ["start decode-0"]
    executed = rig.ledger.recovery("r").last(Step.EXECUTED)
    assert executed is not None
    assert "ssh:gpu7 cannot be reached" in executed.detail


def test_one_that_cannot_start_does_not_keep_the_others_down(rig: Rig) -> None:
    """Forward as far as it goes, then the truth."""
    rig.processes.unstartable = ("prefill-0",)
    assert rig.run() is Outcome.NOT_READY
    assert rig.processes.calls[-1] == "start decode-0"
    assert "fault prefill-0" in rig.steps()


def test_what_was_stopped_before_a_refused_stop_is_started_again(rig: Rig) -> None:
    """Decode may not be stopped: prefill, already asked, is not left down, and the outcome tells why."""
    rig.processes.unstoppable = ("decode-0",)
    assert rig.run() is Outcome.NOT_READY
    assert rig.processes.calls == ["term prefill-0", "term decode-0", "wait prefill-0", "start prefill-0"]
    executed = rig.ledger.recovery("r").last(Step.EXECUTED)
    assert executed is not None
    assert executed.detail == "cannot stop decode-0: access denied"


def test_full_disk_after_the_stop_stops_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first signal on the ledger may fail: what is down is started."""
    real = Ledger.append

    def append(self: Ledger, entry: Entry) -> None:
        real(self, entry)
        if entry.step is Step.STOPPING:
            monkeypatch.setattr(Ledger, "append", full)

    def full(self: Ledger, entry: Entry) -> None:
        raise PdctlError("no room")

    monkeypatch.setattr(Ledger, "append", append)
    assert rig.run() is Outcome.STARTED
    assert rig.processes.calls[-2:] == ["start prefill-0", "start decode-0"]
    assert "no room" in rig.said


def test_full_disk_before_the_stop_touches_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that cannot be written down is not begun."""
    real = Ledger.append

    def append(self: Ledger, entry: Entry) -> None:
        if entry.step is Step.STOPPING:
            raise PdctlError("no room")
        real(self, entry)

    monkeypatch.setattr(Ledger, "append", append)
    with pytest.raises(PdctlError, match="no room"):
        rig.run()
    assert rig.processes.calls == []


def test_second_executor_finds_nothing_to_do(rig: Rig) -> None:
    """A plan is carried out once."""
    rig.run()
    rig.processes.calls.clear()
    assert rig.run() is Outcome.STARTED
    assert rig.processes.calls == []


def test_executor_that_takes_over_stops_only_what_is_old(rig: Rig) -> None:
    """Prefill was started already: it is left alone, decode is stopped and started."""
    Notes(rig.ledger, "r").note(Step.STOPPING)
    rig.processes.seen["prefill-0"] = running("prefill-0", 77)
    assert rig.run() is Outcome.STARTED
    assert rig.processes.calls == ["term decode-0", "wait decode-0", "start decode-0"]


def test_given_up_plan_is_not_carried_out(rig: Rig) -> None:
    """An operator found that nothing was stopped and ended it: a late executor does nothing."""
    Notes(rig.ledger, "r").note(Step.ENDED, outcome=Outcome.ABANDONED)
    assert rig.run() is Outcome.ABANDONED
    assert rig.processes.calls == []


def test_plan_that_was_cancelled_while_it_waited_stops_nothing(rig: Rig) -> None:
    """The client was first to settle it: no signal is sent, however late the executor comes."""
    assert settle(rig.folder, "r", Fate.CANCELLED) is Fate.CANCELLED
    assert rig.run() is Outcome.CANCELLED
    assert rig.processes.calls == []


def test_engine_that_is_never_well_is_told_with_its_words(rig: Rig) -> None:
    """The outcome carries message and hint."""
    rig.never_well = True
    assert rig.run() is Outcome.NOT_READY
    executed = rig.ledger.recovery("r").last(Step.EXECUTED)
    assert executed is not None
    assert executed.detail == "not well after 5 s; see the log"
