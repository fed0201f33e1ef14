"""Hand a plan to the host's executor and follow it by the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable

from pdctl.deployment.state import StateFolder
from pdctl.errors import PdctlError
from pdctl.recover import executor, plan
from pdctl.recover.ledger import Entry, Ledger, Notes, Outcome, Step

POLL_S = 0.05
MOST_EXECUTORS = 3
"""One that is killed is replaced; if that happens again and again, a person should know."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C came after the plan was handed over. What is stopped by then is started all the same."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def finishing_command(name: str) -> str:
    """Return what finishes a recovery that was left half done."""
    return f"pdctl restart --name {name}"


class Following:
    """Follows one recovery until its execution is over."""

    def __init__(
        self, folder: StateFolder, recovery: str, say: Callable[[str], None], predicted_s: float | None = None
    ) -> None:
        self._folder = folder
        self._recovery = recovery
        self._say = say
        self._predicted_s = predicted_s
        self._ledger = Ledger(folder.folder)
        self._shown = 0
        self._began = time.monotonic()
        self._is_interrupted = False

    def hand_over(self, whole: plan.Plan) -> None:
        """Put the plan on the disk. From here on the host finishes it alone."""
        plan.save(whole, self._folder.folder)
        Notes(self._ledger, self._recovery).note(Step.HANDED_OVER)

    def until_executed(self) -> tuple[Outcome, str]:
        """Return how the execution ended, and its words.

        Raises Interrupted after Ctrl-C: before the first signal that cancels; then the first one waits until the
        engines are started, the second returns at once. Raises PdctlError where the executor cannot do its work.
        """
        while True:
            try:
                ended = self._follow()
            except KeyboardInterrupt:
                if self._is_cancelled():
                    raise Interrupted("cancelled before the first signal; nothing was stopped") from None
                if self._is_interrupted:
                    raise Interrupted(f"the engines are being started in the background; {self._finish()}") from None
                self._is_interrupted = True
                about = f"about {self._predicted_s:.0f} s" if self._predicted_s else "some seconds"
                self._say(
                    f"engines are down, starting them first ({about}); Ctrl-C again leaves that to the background"
                )
                continue
            if self._is_interrupted:
                raise Interrupted(f"the execution is over ({ended.outcome}), nothing is verified yet; {self._finish()}")
            assert ended.outcome is not None
            return ended.outcome, ended.detail

    def _is_cancelled(self) -> bool:
        """Cancel the plan, if its executor has not begun to stop."""
        try:
            is_cancelled = plan.settle(self._folder.folder, self._recovery, plan.Fate.CANCELLED) is plan.Fate.CANCELLED
            if is_cancelled:
                detail = "before the first signal"
                Notes(self._ledger, self._recovery).note(Step.ENDED, detail=detail, outcome=Outcome.CANCELLED)
        except PdctlError as error:
            self._say(error.message)
            return False
        return is_cancelled

    def _finish(self) -> str:
        return f"to finish: {finishing_command(self._folder.name)}"

    def _follow(self) -> Entry:
        for _ in range(MOST_EXECUTORS):
            child = executor.spawn(self._folder, self._recovery)
            while child.poll() is None:
                if (ended := self._news()) is not None:
                    return ended
                time.sleep(POLL_S)
            if (ended := self._news()) is not None:
                return ended
            if not self._ledger.recovery(self._recovery).has(Step.STOPPING):
                break
            self._say("the executor died half way; starting another, which goes on from there")
        log = plan.folder_of(self._folder.folder, self._recovery) / "executor.log"
        has_stopped = self._ledger.recovery(self._recovery).has(Step.STOPPING)
        state = "half done" if has_stopped else "nothing was stopped"
        raise PdctlError(f"the executor did not finish ({state}); its words are in {log}", self._finish())

    def _news(self) -> Entry | None:
        """Show what was written since the last look; return the end of the execution."""
        entries = self._ledger.recovery(self._recovery).entries
        for entry in entries[self._shown :]:
            if entry.step not in (Step.PLANNED, Step.SNAPSHOT, Step.TAKEN_OVER):
                step = "" if entry.step is Step.WAITING else str(entry.step).replace("_", " ")
                words = " ".join(filter(None, (entry.instance, step, entry.detail)))
                took = f" after {entry.took_s:.1f} s" if entry.took_s is not None else ""
                self._say(f"{time.monotonic() - self._began:6.1f} s  {words}{took}")
        self._shown = len(entries)
        return next((entry for entry in reversed(entries) if entry.step is Step.EXECUTED), None)
