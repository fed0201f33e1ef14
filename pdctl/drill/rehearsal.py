"""One drill: load, fault, proof that it is there; then what an operator does next, held against the truth."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from pdctl.diagnose.report import Report
from pdctl.drill.catalogue import Cure, Drill
from pdctl.drill.stage import Stage
from pdctl.errors import PdctlError, Refused
from pdctl.evidence.archive import share
from pdctl.hosts.hosts import Hosts
from pdctl.recover import plan, verification
from pdctl.recover.gates import Wish
from pdctl.recover.ledger import Outcome
from pdctl.recover.live import Live
from pdctl.recover.proposal import Choice, Proposal
from pdctl.recover.recovery import recover
from pdctl.recover.request import Operations, Request

LOADED_S = 60.0
THERE_S = 90.0
WATCH_S = 1.0
MENDED_S = 90.0
PROVEN = "proven"
REFUSED = "refused"


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one drill. Seconds are None where there was nothing to measure."""

    drill: str
    expected: str
    """Code that is the truth."""
    named: str | None
    """First firm cause of the report."""
    subject: str | None
    verdict: str
    ruled_out: tuple[str, ...]
    causes_s: float
    """From the fault to the proof that it is there."""
    detect_s: float
    snapshot_s: float | None
    recover_s: float | None
    """From the operator's command to verified service; None where none was needed or none came of it."""
    end: str
    """proven | refused | what went wrong."""
    lost: int
    """Requests of the load that failed, ours on purpose left out."""
    kept: str | None

    @property
    def is_named_right(self) -> bool:
        """Return whether the true cause came first."""
        return self.named == self.expected

    @property
    def is_truth_ruled_out(self) -> bool:
        """Return whether the report says that it is not the true cause."""
        return self.expected in self.ruled_out

    @property
    def is_ended_right(self) -> bool:
        """Return whether service was proven, or a restart that nothing calls for was refused."""
        return self.end == (REFUSED if self.expected.startswith("PD09") else PROVEN)

    @property
    def is_passed(self) -> bool:
        """Return whether it was named, not ruled out, and ended as it should."""
        return self.is_named_right and not self.is_truth_ruled_out and self.is_ended_right


def caused(stage: Stage, drill: Drill, seed: int) -> float:
    """Apply the load, cause the fault and wait until it is really there; return the seconds. Raises NotProven."""
    stage.must_serve()
    stage.start_load(msgspec.structs.replace(drill.load, seed=drill.load.seed + seed))
    stage.until(stage.is_loaded, LOADED_S, "requests of the load have ended")
    stage.say(f"{drill.name}: {drill.what}")
    began = time.monotonic()
    drill.cause(stage)
    stage.until(lambda: drill.is_there(stage), THERE_S, f"{drill.name}: {drill.proof}")
    took_s = time.monotonic() - began
    stage.say(f"it is there after {took_s:.1f} s: {drill.proof}")
    return took_s


def attended(stage: Stage, drill: Drill) -> None:
    """Stay until Ctrl-C, and tell when requests get through again. Sends nothing but the load."""
    began, before = time.monotonic(), stage.answered()
    is_told = drill.cure is Cure.NONE
    while True:
        time.sleep(WATCH_S)
        if not is_told and stage.answered() > before:
            stage.say(
                f"requests of the load get through again after {time.monotonic() - began:.0f} s; Ctrl-C ends the drill"
            )
            is_told = True


def scored(stage: Stage, drill: Drill, causes_s: float) -> Score:
    """Diagnose, keep, bring service back (or be refused), prove it, and compare with the truth."""
    live = Live(stage.folder, stage.deployment, stage.say)
    timed = _Timed(live)
    end, recover_s = _mended(stage, timed) if drill.cure is Cure.CONFIG else _recovered(stage, drill, timed)
    report = live.report
    firm = report.firm[0] if report.firm else None
    lost = stage.load.stop().failed if stage.load is not None else 0
    return Score(
        drill=drill.name,
        expected=drill.code,
        named=firm.code if firm else None,
        subject=firm.subject.instance if firm else None,
        verdict=report.verdict,
        ruled_out=tuple(dict.fromkeys(row.code for row in report.ruled_out)),
        causes_s=round(causes_s, 2),
        detect_s=round(timed.detect_s, 2),
        snapshot_s=timed.snapshot_s,
        recover_s=None if recover_s is None else round(recover_s, 2),
        end=end,
        lost=lost,
        kept=str(live.path),
    )


class _Timed:
    """The operator's looks, with a stopwatch."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self.detect_s = 0.0
        self.snapshot_s: float | None = None

    def diagnose(self) -> Report:
        """Diagnose what runs."""
        began = time.monotonic()
        report = self._live.diagnose()
        self.detect_s = time.monotonic() - began
        return report

    def snapshot(self) -> Path:
        """Keep the evidence."""
        began = time.monotonic()
        kept = self._live.complete()
        self.snapshot_s = round(time.monotonic() - began, 2)
        return kept


def _recovered(stage: Stage, drill: Drill, timed: _Timed) -> tuple[str, float | None]:
    """Do what `pdctl snapshot-and-restart --yes` does."""
    operations = Operations(
        say=stage.say, choose=_nobody, diagnose=timed.diagnose, snapshot=timed.snapshot, share=share
    )
    reason = f"drill {drill.name}"
    # A bare --yes where it must be refused: a reason would let an unknown verdict through.
    wish = Wish(yes=True) if drill.cure is Cure.NONE else Wish(yes=True, reason=reason, force=drill.cure is Cure.FORCED)
    request = Request(command=f"pdctl drill {drill.name}", wish=wish)
    try:
        with Hosts() as hosts:
            result = recover(stage.folder, stage.deployment, request, operations, hosts)
    except Refused as refused:
        stage.say(f"refused: {refused.message}")
        return (REFUSED if drill.cure is Cure.NONE else f"{REFUSED}: {refused.message}"), None
    if result.outcome is not Outcome.RECOVERED:
        return f"{result.outcome}: {result.detail}", None
    # The archive is made when service is back already.
    return PROVEN, sum(phase.took_s for phase in result.phases)


def _nobody(proposal: Proposal) -> Choice:
    """Nobody is asked in a drill."""
    return Choice.QUIT


def _mended(stage: Stage, timed: _Timed) -> tuple[str, float | None]:
    """Diagnose, keep the evidence, take the cause away, wait for the engines, and prove every pair and the router."""
    began = time.monotonic()
    timed.diagnose()
    timed.snapshot()
    stage.mend()
    try:
        stage.until(lambda: stage.get(stage.decode, "/health").get("status") == "ok", MENDED_S, "decode healthy again")
        stage.until(stage.passes, MENDED_S, "a request that passes")
    except PdctlError as late:
        return late.message, None
    locks = plan.folder_of(stage.folder.folder, f"drill-{os.getpid()}") / "probes"
    names = tuple(item.name for item in stage.deployment.instances)
    proof = verification.verify(stage.deployment, names, locks, timeout_s=30.0, say=stage.say)
    if proof.outcome is not Outcome.RECOVERED:
        return f"{proof.outcome}: {proof.problem()}", None
    return PROVEN, time.monotonic() - began
