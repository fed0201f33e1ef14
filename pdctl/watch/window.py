"""The last samples, and the evidence that they make."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pdctl.collect.incident import topology_document
from pdctl.deployment.model import Deployment
from pdctl.diagnose.limits import LIMITS
from pdctl.evidence.directory import evidence_of
from pdctl.evidence.model import Evidence
from pdctl.probe import ProbeResult
from pdctl.probe.evidence import PROBE_FILE, probe_document
from pdctl.watch.sampler import Sample

PATIENCE_S = LIMITS.patience_s
"""A stall is certain once the samples span it."""
STILL_S = 4.0
"""What stands while a canary waits is seen over a shorter span: the canary's own prompt makes prefill move first."""
STEP_S = 1.0
"""More than that between the two clocks of two samples, and the wall clock was set, or the machine slept."""
_FIRST = ".prev."


class Window:
    """Keeps samples for as long as patience lasts."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._samples: deque[Sample] = deque()

    def add(self, sample: Sample) -> None:
        """Take the newest sample, and forget those that are older than any judgement needs.

        All are forgotten when the wall clock was set meanwhile: times that were told before and after do not compare.
        """
        if self._samples and _has_stepped(self._samples[-1], sample):
            self._samples.clear()
        self._samples.append(sample)
        while len(self._samples) > 2 and self._age_s(self._samples[1]) >= PATIENCE_S:
            self._samples.popleft()

    def evidence(self, probes: Sequence[ProbeResult], span_s: float) -> Evidence:
        """Return the newest sample against the youngest that is `span_s` older; against the oldest, if none is."""
        last = self._samples[-1]
        old_enough = [sample for sample in self._samples if self._age_s(sample) >= span_s]
        first = old_enough[-1] if old_enough else self._samples[0]
        prev_at = first.at if first is not last else None
        files = {"topology.toml": topology_document(self._deployment, last.at, prev_at)}
        if first is not last:
            files |= {name: content for name, content in first.files.items() if _FIRST in name}
        files |= {name.replace(_FIRST, "."): content for name, content in last.files.items()}
        if probes:
            files[PROBE_FILE] = probe_document(probes)
        return evidence_of(files)

    def _age_s(self, sample: Sample) -> float:
        return self._samples[-1].clock_s - sample.clock_s


def _has_stepped(before: Sample, now: Sample) -> bool:
    return abs((now.at - before.at).total_seconds() - (now.clock_s - before.clock_s)) > STEP_S
