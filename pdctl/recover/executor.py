"""The process that carries a plan out: `python -m pdctl.recover.executor STATE_FOLDER RECOVERY`.

It has a session of its own and the whole plan, so neither Ctrl-C, a closed terminal nor the client's death stops
it half way: it never waits for the client, so what it stopped it starts again at once.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pdctl.deployment.readiness import Event, Phase, Processes, Wait
from pdctl.deployment.state import StateFolder
from pdctl.errors import PdctlError, Refused
from pdctl.hosts.hosts import Hosts
from pdctl.recover import plan as plans
from pdctl.recover.execution import Execution, WaitUntilWell
from pdctl.recover.guards import Guards, hosts_of
from pdctl.recover.ledger import Ledger, Notes, Outcome, Step
from pdctl.recover.ledgers import MirroredLedger
from pdctl.recover.managers import Managers
from pdctl.recover.plan import Target


def spawn(folder: StateFolder, recovery: str) -> subprocess.Popen[bytes]:
    """Start an executor that outlives this process."""
    output = plans.folder_of(folder.folder, recovery) / "executor.log"
    try:
        with output.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "pdctl.recover.executor", str(folder.folder), recovery],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    except OSError as error:
        raise PdctlError(f"cannot start the executor: {error.strerror}", f"see {output}") from error


def execute(folder: StateFolder, recovery: str, say: Callable[[str], None]) -> None:
    """Carry the plan out, alone: two executors of one plan take turns, and the second finds nothing to do."""
    plan = plans.load(folder.folder, recovery)

    def waits(line: str) -> None:
        say(line)
        Notes(Ledger(folder.folder), recovery).note(Step.WAITING, detail=line)

    with folder.locked(waits), Hosts() as hosts:
        ledger = MirroredLedger(folder, [hosts.of(name) for name in hosts_of(plan)], say)
        managers = Managers(folder, plan.deployment, hosts.of)
        past = ledger.recovery(recovery)
        if past.outcome is not None:
            say(f"it has ended: {past.outcome}")
            return
        try:
            with Guards(plan, hosts).armed(say, is_past_stop=past.has(Step.STOPPING)):
                settle = functools.partial(plans.settle, folder.folder, recovery)
                until_well = _wait(managers, hosts, plan.ready_timeout_s)
                Execution(plan, ledger, managers, settle, until_well, say).run()
        except Refused as error:
            Notes(Ledger(folder.folder), recovery).note(Step.EXECUTED, detail=error.message, outcome=Outcome.REFUSED)


def _wait(processes: Processes, hosts: Hosts, timeout_s: float) -> WaitUntilWell:
    def until_well(targets: Sequence[Target], on_ready: Callable[[str], None]) -> None:
        def progress(event: Event) -> None:
            if event.phase is Phase.READY:
                on_ready(event.instance)

        instances = tuple(target.instance for target in targets)
        Wait(processes, progress, time.monotonic(), hosts).until_well(instances, timeout_s)

    return until_well


def main(state_folder: str, recovery: str) -> int:
    """Run one plan; what happens is in the ledger, what was said in the log beside the plan."""
    path = Path(state_folder)

    def say(line: str) -> None:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", flush=True)

    try:
        execute(StateFolder(path.parent, path.name), recovery, say)
    except PdctlError as error:
        say(f"{error.message}; {error.hint}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
