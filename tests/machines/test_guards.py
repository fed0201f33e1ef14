"""What is left behind on another host, there against a real systemd: it starts what was stopped, or does nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.deployment.state import StateFolder
from pdctl.errors import Refused
from pdctl.hosts.hosts import Hosts
from pdctl.recover import guards
from pdctl.recover.guards import Guards
from pdctl.recover.ledger import Notes, Outcome, Step
from pdctl.recover.ledgers import MirroredLedger, everybodys
from pdctl.recover.plan import Plan, Target
from tests.machines.booted import Booted
from tests.waiting import eventually

UNIT = "guarded.service"
STATE = Path("root/.local/state/pdctl")


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """Connections of one operator."""
    with Hosts() as hosts:
        yield hosts


@pytest.fixture(autouse=True)
def unit(machine: Booted) -> None:
    """A unit that runs, and no patience: no sign of life comes in time."""
    machine.install([(f"/etc/systemd/system/{UNIT}", "[Service]\nExecStart=/bin/sleep 1000\n")])
    machine.systemctl("start", UNIT)


def plan_of(machine: Booted, name: str, recovery: str = "r1") -> Plan:
    """Return a plan about the unit, in a deployment of its own."""
    # The operator's HOME is not the one there.
    host = f"exec:nsenter -t {machine.leader} -a env HOME=/root"
    item = Instance(
        name="d", role=Role.DECODE, dialect="pdctl", url="http://127.0.0.1:1", manager="systemd", unit=UNIT, host=host
    )
    deployment = Deployment(name=name, model="m", instances=(item,))
    return Plan(id=recovery, deployment=deployment, targets=(Target(instance=item),), drain_s=1, ready_timeout_s=5)


def notes_of(plan: Plan, folder: Path, hosts: Hosts) -> Notes:
    """Return what writes the plan's steps, here and there."""
    state = StateFolder(folder, plan.deployment.name)
    state.create()
    remote = [hosts.of(name) for name in guards.hosts_of(plan)]
    return Notes(MirroredLedger(state, remote, print), plan.id)


def said_there(machine: Booted, name: str) -> list[tuple[str, str]]:
    """Return the steps in the ledger of the host, with their outcome."""
    path = machine.root / STATE / name / "ledger.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []
    return [(entry["step"], entry.get("outcome", "")) for entry in entries]


def test_what_was_stopped_is_started_when_nobody_gives_a_sign_of_life(
    machine: Booted, hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pdctl vanished after the stop: the unit is a new run, and the host's own ledger tells the end of it."""
    monkeypatch.setattr(guards, "PATIENCE_S", 0.5)
    plan = plan_of(machine, "vanished")
    before = machine.shown(UNIT, "InvocationID")
    with Guards(plan, hosts).armed(print):
        notes_of(plan, tmp_path, hosts).note(Step.STOPPING)
        machine.systemctl("stop", UNIT)
    hosts.close()
    eventually(lambda: ("ended", "not_verified") in said_there(machine, "vanished"))
    assert machine.shown(UNIT, "ActiveState") == "active"
    assert machine.shown(UNIT, "InvocationID") != before
    assert [step for step, _ in said_there(machine, "vanished")] == [
        "stopping", "taken_over", "starting", "started", "executed", "ended",
    ]  # fmt: skip
    seen = everybodys(StateFolder(tmp_path / "of another", "vanished"), plan.deployment, hosts, print)
    assert [(item.id, item.outcome) for item in seen] == [("r1", Outcome.NOT_VERIFIED)]


def test_what_was_not_stopped_is_left_alone(
    machine: Booted, hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pdctl vanished before the first signal: the recovery is abandoned there, the unit runs on."""
    monkeypatch.setattr(guards, "PATIENCE_S", 0.5)
    plan = plan_of(machine, "early")
    before = machine.shown(UNIT, "InvocationID")
    with Guards(plan, hosts).armed(print):
        pass
    eventually(lambda: said_there(machine, "early") == [("ended", "abandoned")])
    assert machine.shown(UNIT, "InvocationID") == before


def test_second_operator_is_told_who_works_there(machine: Booted, hosts: Hosts, tmp_path: Path) -> None:
    """From any machine; once the first has executed its plan, the way is free."""
    first, second = plan_of(machine, "twice"), plan_of(machine, "twice", "r2")
    with Guards(first, hosts).armed(print):
        with (
            pytest.raises(Refused, match=r"r1 by .* is recovering 'twice' on exec:nsenter"),
            Guards(second, hosts).armed(print),
        ):
            pass
        # Its own executor, started anew after a kill, finds its guard.
        with Guards(first, hosts).armed(print):
            pass
        notes_of(first, tmp_path, hosts).note(Step.EXECUTED, outcome=Outcome.STARTED)

    def armed() -> bool:
        try:
            with Guards(second, hosts).armed(print):
                notes_of(second, tmp_path, hosts).note(Step.ENDED, outcome=Outcome.CANCELLED)
        except Refused:
            return False
        return True

    eventually(armed)


def test_host_that_cannot_be_reached_stops_nothing(hosts: Hosts, machine: Booted) -> None:
    """Before the stop that is a refusal; afterwards the others must come up all the same."""
    plan = plan_of(machine, "far")
    item = msgspec.structs.replace(plan.targets[0].instance, host="exec:sh -c 'echo no route >&2; false' #")
    plan = msgspec.structs.replace(plan, targets=(Target(instance=item),))
    with (
        pytest.raises(Refused, match=r"no guard could be left on exec:sh .* so nothing was stopped: .*no route"),
        Guards(plan, hosts).armed(print),
    ):
        pass
    said: list[str] = []
    with Guards(plan, hosts).armed(said.append, is_past_stop=True):
        assert "no route" in said[0]


def test_plan_that_another_left_half_done_is_not_passed_over(machine: Booted, hosts: Hosts, tmp_path: Path) -> None:
    """Its stop is in the host's ledger, and neither its start nor its end."""
    folder = machine.root / STATE / "half"
    folder.mkdir(parents=True)
    line = {"recovery": "r0", "at": 1.0, "step": "stopping", "by": "eve@laptop pid 7"}
    (folder / "ledger.jsonl").write_text(json.dumps(line) + "\n{torn")
    with (
        pytest.raises(Refused, match="r0 by eve@laptop pid 7, which is half done, is recovering 'half'"),
        Guards(plan_of(machine, "half"), hosts).armed(print),
    ):
        pass
