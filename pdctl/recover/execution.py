"""Carry a plan out on this host: stop all targets together, start them, wait until they are well.

Idempotent: whoever runs it again, after any kill, looks at what is there and goes on from that. Once something
was stopped the only direction is forward, so from then on even a ledger that cannot be written stops nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from pdctl.errors import NotProven, PdctlError
from pdctl.managers.sight import Sight
from pdctl.managers.unkillable import Unkillable
from pdctl.recover.ledger import Ledger, Notes, Outcome, Recovery, Step
from pdctl.recover.manager import Manager
from pdctl.recover.plan import Fate, Plan, Target, has_changed

Settle = Callable[[Fate], Fate]
"""Settles what becomes of the plan; returns what was settled."""
WaitUntilWell = Callable[[Sequence[Target], Callable[[str], None]], None]
"""Waits for started instances; calls its second argument with each name that is well. Raises NotProven."""


class Execution:
    """One run of a plan. The caller holds the deployment's lock."""

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger,
        manager: Manager,
        settle: Settle,
        wait_until_well: WaitUntilWell,
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._ledger = ledger
        self._notes = Notes(ledger, plan.id)
        self._manager = manager
        self._settle = settle
        self._wait_until_well = wait_until_well
        self._say = say
        self._is_past_stop = False
        self._failures: list[str] = []

    def run(self) -> Outcome:
        """Do what is left to do. Raises PdctlError only while nothing was stopped."""
        past = self._past()
        # Ended without us: given up by an operator who found that nothing was stopped yet.
        done = past.last(Step.EXECUTED) or past.last(Step.ENDED)
        if done is not None and done.outcome is not None:
            return done.outcome
        self._is_past_stop = past.has(Step.STOPPING)
        self._note(Step.TAKEN_OVER)
        if not self._is_past_stop:
            if stranger := self._stranger():
                return self._executed(Outcome.REFUSED, stranger)
            if self._settle(Fate.CARRIED_OUT) is Fate.CANCELLED:
                return self._executed(Outcome.CANCELLED, "before the first signal")
        try:
            self._stop()
            self._start()
        except Unkillable as error:
            return self._executed(Outcome.UNKILLABLE, f"{error.message}; nothing is started beside it; {error.hint}")
        except PdctlError as error:
            if not self._is_past_stop:
                raise
            return self._executed(Outcome.NOT_READY, error.message)
        return self._until_well()

    def _stranger(self) -> str | None:
        """Return who restarted a target since the plan was made."""
        for target in self._plan.targets:
            seen = self._manager.look(target.name)
            if has_changed(target, seen):
                who = self._who_started(target.name)
                return f"{target.name} was restarted meanwhile by {who}: it is pid {seen.pid}, was {target.pid}"
        return None

    def _who_started(self, name: str) -> str:
        for recovery in reversed(self._ledger.recoveries()):
            entry = recovery.last(Step.STARTED, name)
            if entry is not None and recovery.id != self._plan.id:
                return f"{entry.by} ({recovery.id})"
        return "its manager, `pdctl up` or somebody else"

    def _stop(self) -> None:
        to_stop = [target for target in self._plan.targets if not self._is_new(target)]
        if not to_stop:
            return
        names = ", ".join(target.name for target in to_stop)
        self._note(Step.STOPPING, detail=f"{names}: SIGTERM, after {self._plan.drain_s:g} s SIGKILL")
        self._is_past_stop = True
        asked = [target for target in to_stop if self._is_asked_to_stop(target)]
        began = time.monotonic()
        for target in asked:
            left_s = max(0.0, self._plan.drain_s - (time.monotonic() - began))
            try:
                was_killed = self._manager.await_stopped(target.name, left_s)
            except Unkillable:
                raise
            except PdctlError as error:
                self._fault(target.name, error)
                continue
            if not self._past().has(Step.STOPPED, target.name):
                how = "killed" if was_killed else "left by itself" if target.pid else "did not run"
                self._note(Step.STOPPED, target.name, how, took_s=time.monotonic() - began)

    def _is_asked_to_stop(self, target: Target) -> bool:
        """Ask; one that cannot be asked stays as it is, and what was asked before it must come up again."""
        try:
            self._manager.ask_to_stop(target.name)
        except PdctlError as error:
            self._fault(target.name, error)
            return False
        return True

    def _start(self) -> None:
        for target in self._plan.targets:
            seen = self._seen(target)
            if seen is None or not seen.is_down:
                continue  # started by an executor before us, or by somebody since: never two of one
            self._note(Step.STARTING, target.name)
            try:
                seen = self._manager.start(target)
            except PdctlError as error:
                self._fault(target.name, error)
                continue
            self._note(Step.STARTED, target.name, pid=seen.pid, run=seen.run)
        if self._failures:
            raise NotProven("; ".join(self._failures))

    def _is_new(self, target: Target) -> bool:
        """Return whether what runs is not the process to stop, or is not known; its leftovers count as itself."""
        seen = self._seen(target)
        return seen is None or has_changed(target, seen)

    def _seen(self, target: Target) -> Sight | None:
        """Look; once something was stopped, one that cannot be seen keeps no other down."""
        try:
            return self._manager.look(target.name)
        except PdctlError as error:
            if not self._is_past_stop:
                raise
            self._fault(target.name, error)
            return None

    def _fault(self, name: str, error: PdctlError) -> None:
        """Note what went wrong with one target: the others are still better up than down."""
        self._failures.append(error.message)
        self._note(Step.FAULT, name, error.message)

    def _until_well(self) -> Outcome:
        def on_ready(name: str) -> None:
            with contextlib.suppress(PdctlError):  # It is well all the same.
                started_at = self._manager.look(name).started_at
                if started_at and not self._past().has(Step.READY, name):
                    self._note(Step.READY, name, took_s=time.time() - started_at)

        try:
            self._wait_until_well(self._plan.targets, on_ready)
        except PdctlError as error:
            return self._executed(Outcome.NOT_READY, f"{error.message}; {error.hint}" if error.hint else error.message)
        return self._executed(Outcome.STARTED, "")

    def _executed(self, outcome: Outcome, detail: str) -> Outcome:
        self._note(Step.EXECUTED, detail=detail, outcome=outcome)
        return outcome

    def _past(self) -> Recovery:
        return self._ledger.recovery(self._plan.id)

    def _note(
        self,
        step: Step,
        instance: str = "",
        detail: str = "",
        *,
        outcome: Outcome | None = None,
        took_s: float | None = None,
        pid: int | None = None,
        run: str | None = None,
    ) -> None:
        self._say(f"{step} {instance} {detail}".rstrip())
        try:
            self._notes.note(step, instance, detail, outcome=outcome, took_s=took_s, pid=pid, run=run)
        except PdctlError as error:
            if not self._is_past_stop:
                raise
            self._say(error.message)
