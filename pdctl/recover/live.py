"""Diagnose what runs now: collect, read, judge, until the evidence decides or patience is over.

What was collected stays as the kept snapshot: the same bytes that the verdict came from.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from pdctl import __version__
from pdctl.collect.session import Collector
from pdctl.collect.summary import CollectionSummary
from pdctl.deployment.model import Deployment
from pdctl.deployment.state import StateFolder
from pdctl.diagnose.diagnosis import diagnose
from pdctl.diagnose.recurrence import conclusion_of
from pdctl.diagnose.report import Report
from pdctl.diagnose.verdict import Verdict
from pdctl.errors import PdctlError
from pdctl.evidence import kept, manifest
from pdctl.evidence.directory import read_directory
from pdctl.hosts.hosts import Hosts
from pdctl.probe import ProbeResult, prove
from pdctl.probe.evidence import PROBE_FILE, probe_document
from pdctl.recover.blame import blames_only_the_clients, blames_only_the_router, is_explained

INTERVAL_S = 2.0
SAMPLE_S = 8.0
DUMP_S = 5.0
PROBE_S = 10.0
PATIENCE_S = 20.0
"""Above the longest default patience of a stall (10 s), with the time that hung endpoints cost."""
_DECIDED = (Verdict.WEDGED, Verdict.HEALTHY, Verdict.NOT_A_WEDGE)
_STANDS = ("stalled", "suspected", "stopped")


class Live:
    """One incident, looked at for as long as it takes."""

    def __init__(
        self, folder: StateFolder, deployment: Deployment, say: Callable[[str], None], hosts: Hosts | None = None
    ) -> None:
        """Make the kept directory. Raises PdctlError."""
        self._deployment = deployment
        self._say = say
        folder.create()
        self.path = kept.fresh_directory(folder.folder)
        self._collector = Collector(deployment, self.path, say, folder, hosts=hosts)
        self._report: Report | None = None
        self._probes: list[ProbeResult] = []
        self._is_probed = False
        self.summary: CollectionSummary | None = None
        self.is_complete = False

    def diagnose(self, *, patience_s: float = PATIENCE_S, may_probe: bool = True) -> Report:
        """Return the report as soon as it is decided, at the latest after about `patience_s`.

        Where the samples cannot decide, one tagged request goes to each pair (unless `may_probe` is false); stacks
        are taken only of instances that stand or seem to, at once of those that a signal holds.
        """
        try:
            return self._decided(patience_s, may_probe)
        finally:
            # Whatever is chosen next: without it this incident could not be found again.
            with contextlib.suppress(PdctlError):
                self._write_manifest()

    def _decided(self, patience_s: float, may_probe: bool) -> Report:
        ends_at = time.monotonic() + patience_s
        self.summary = self._collector.take(interval_s=INTERVAL_S, timeout_s=SAMPLE_S, dumps_stopped=True)
        report = self._judged()
        while not self._is_decided(report, may_probe) and time.monotonic() < ends_at:
            if may_probe and not self._is_probed:
                self._is_probed = True
                self._probe(report)
            self._again(_standing(report))
            report = self._judged()
        return report

    def take(self, *, tier: int, timeout_s: float) -> CollectionSummary:
        """Collect once, without judging, and write the manifest. Takes at most `timeout_s`, whatever hangs."""
        self.summary = self._collector.take(tier=tier, interval_s=INTERVAL_S, timeout_s=timeout_s)
        self._write_manifest()
        return self.summary

    def complete(self) -> Path:
        """Add the stacks of what stands, and the manifest; return the kept directory. Takes at most some 6 s."""
        standing = _standing(self._report) if self._report else set()
        if standing - self._collector.dumped:
            # No new sample: in a later one what decided may be over, such as rooms that have just expired.
            self.summary = self._collector.dump(standing, DUMP_S)
            self._judged()
        self._write_manifest()
        self.is_complete = True
        return self.path

    @property
    def name(self) -> str:
        """Return the deployment's name."""
        return self._deployment.name

    @property
    def report(self) -> Report:
        """Return the judgement of what is kept now."""
        return self._report or self._judged()

    def _write_manifest(self) -> None:
        if self.summary is not None:
            conclusion = conclusion_of(self._report) if self._report else None
            manifest.write(self.path, manifest_of(self.path, self._deployment.name, self.summary, conclusion))

    def _is_decided(self, report: Report, may_probe: bool) -> bool:
        """Return whether more evidence would change nothing.

        A router is blamed only after a direct request passed; that clients left for no fault of the engines is said
        only after one was answered: wrong answers drive clients away too, and everything moves.
        """
        if (blames_only_the_router(report) or blames_only_the_clients(report)) and may_probe:
            return self._is_probed
        return report.verdict in _DECIDED or is_explained(report)

    def _again(self, standing: set[str]) -> None:
        timeout_s = DUMP_S if standing else SAMPLE_S
        self.summary = self._collector.again(tier=1 if standing else 0, timeout_s=timeout_s, names=standing)

    def _judged(self) -> Report:
        self._report = diagnose(read_directory(self.path), self._deployment.name)
        self._say(f"verdict so far: {self._report.verdict}")
        return self._report

    def _probe(self, report: Report) -> None:
        states = {(pair.prefill, pair.decode): pair.state for pair in report.impact.pairs}
        for prefill, decode in self._deployment.pairs:
            if states.get((prefill.name, decode.name)) not in ("stalled", "failing"):
                alone = msgspec.structs.replace(self._deployment, instances=(prefill, decode))
                self._send(alone, f"{prefill.name} -> {decode.name}", direct=True)
        router = self._deployment.router
        is_wanted = router is not None and (not self._probes or _is_unwell(report, router.name))
        if router is not None and is_wanted and "stalled" not in states.values():
            # Engines of some families take requests from their frontend alone; and it shows what clients get.
            self._send(self._deployment, router.name, direct=False)
        if self._probes:
            self._collector.keep(PROBE_FILE, probe_document(self._probes))

    def _send(self, deployment: Deployment, way: str, *, direct: bool) -> None:
        """Send one request and keep its outcome; one that cannot be sent is told."""
        try:
            self._probes += prove(deployment, direct=direct, timeout_s=PROBE_S, progress=self._say).results
        except PdctlError as error:
            self._say(f"{way}: not probed: {error.message}")


def manifest_of(
    path: Path, deployment: str, summary: CollectionSummary, conclusion: manifest.Conclusion | None = None
) -> manifest.Manifest:
    """Return what a collected directory holds, what it lacks, what taking it did, and what was concluded from it."""
    return manifest.Manifest(
        deployment=deployment,
        tool_version=__version__,
        captured_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        took_s=summary.took_s,
        is_complete=summary.is_complete,
        requests=summary.intrusion.requests,
        received_bytes=summary.intrusion.received_bytes,
        attached=summary.intrusion.attached,
        longest_pause_ms=summary.intrusion.longest_pause_ms,
        files=manifest.files_of(path),
        missing=tuple(
            manifest.MissingEntry(path=f"{item.instance}/{item.file}", status=item.status.value, error=item.error)
            for item in summary.missing
        ),
        conclusion=conclusion,
    )


def _is_unwell(report: Report, instance: str) -> bool:
    """Return whether an instance says of itself that it is not well."""
    return any(row.instance == instance and row.symptom == "unhealthy" for row in report.symptoms)


def _standing(report: Report) -> set[str]:
    """Return the instances that stand or seem to: only those are attached to."""
    return {row.instance for row in report.symptoms if row.symptom in _STANDS and row.instance}
