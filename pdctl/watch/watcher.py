"""One look after the other: sample, judge, confirm, and let the canary know."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from datetime import datetime

from pdctl.deployment.model import Deployment
from pdctl.deployment.state import StateFolder
from pdctl.diagnose.diagnosis import diagnose
from pdctl.diagnose.report import Report
from pdctl.diagnose.verdict import Verdict as Judged
from pdctl.evidence.model import Evidence
from pdctl.hosts.hosts import Hosts
from pdctl.probe import ProbeResult, Verdict
from pdctl.watch.canary import Canary
from pdctl.watch.sampler import Sampler
from pdctl.watch.sight import CanarySight, InstanceSight, Sight, findings, instance_sights
from pdctl.watch.window import PATIENCE_S, STILL_S, Window

DEFAULT_INTERVAL_S = 2.0
_SUSPICIOUS = (Judged.UNKNOWN, Judged.WEDGED, Judged.FAILING)
"""Where a request would tell more than the samples do."""

Show = Callable[[Sight], None]


class Confirmation:
    """Holds the verdict that two consecutive judgements agreed on, so that one odd sample alarms nobody."""

    def __init__(self) -> None:
        self.verdict: str = Judged.UNKNOWN
        self.since: datetime | None = None
        self._last: tuple[str, datetime | None] | None = None

    def judge(self, verdict: str, at: datetime | None) -> None:
        """Take the newest judgement."""
        if self._last is not None and self._last[0] == verdict != self.verdict:
            self.verdict, self.since = verdict, self._last[1]
        if self._last is None or self._last[0] != verdict:
            self._last = (verdict, at)


class Watcher:
    """Looks at one deployment. Without a canary it sends nothing but GETs."""

    def __init__(self, deployment: Deployment, folder: StateFolder, hosts: Hosts, canary: Canary | None = None) -> None:
        self.canary = canary
        self._deployment = deployment
        self._sampler = Sampler(deployment, folder, hosts)
        self._window = Window(deployment)
        self._confirmation = Confirmation()
        self._unwell: frozenset[str] = frozenset()

    async def look(self) -> Sight:
        """Take a sample and judge it. Takes as long as the slowest endpoint, some 10 s at most."""
        began = time.monotonic()
        self._window.add(await self._sampler.take())
        probes = self.canary.results if self.canary else ()
        evidence = self._window.evidence(probes, PATIENCE_S)
        report = self._judge(evidence, probes)
        instances = instance_sights(evidence)
        self._confirmation.judge(report.verdict, report.captured_at)
        if self.canary is not None and evidence.interval_s is not None:
            self._prompt(self.canary, report, instances)
        return Sight(
            deployment=self._deployment.name,
            at=report.captured_at,
            verdict=report.verdict,
            confirmed=self._confirmation.verdict,
            confirmed_since=self._confirmation.since,
            window_s=evidence.interval_s,
            took_s=round(time.monotonic() - began, 3),
            instances=instances,
            causes=findings(report),
            symptoms=tuple(row.text for row in report.symptoms),
            canaries=tuple(_canary(result) for result in (self.canary.last if self.canary else ())),
        )

    def _judge(self, evidence: Evidence, probes: Sequence[ProbeResult]) -> Report:
        """Return the report over patience; where a canary failed and it is no wedge, that over the shorter span."""
        report = diagnose(evidence, self._deployment.name)
        if report.verdict == Judged.WEDGED or all(result.verdict is Verdict.PROVEN for result in probes):
            return report
        still = diagnose(self._window.evidence(probes, STILL_S), self._deployment.name)
        return still if still.verdict == Judged.WEDGED else report

    def _prompt(self, canary: Canary, report: Report, instances: Sequence[InstanceSight]) -> None:
        """Let the canary know what is suspicious. Users' tokens prove more than ours; one more would only be load."""
        unwell = frozenset(item.name for item in instances if item.state != "ok")
        canary.forget(self._unwell ^ unwell)
        self._unwell = unwell
        do_tokens_flow = any(one.tokens_s for one in instances if one.role in ("decode", "unified"))
        is_suspicious = (bool(unwell) or report.verdict in _SUSPICIOUS) and not do_tokens_flow
        canary.tick(is_suspicious=is_suspicious, suspects=frozenset(report.affected) | unwell)


async def watch(
    watcher: Watcher, interval_s: float, show: Show, count: int | None = None, stop: asyncio.Event | None = None
) -> None:
    """Look every `interval_s` seconds, `count` times or until `stop` is set; a look that takes longer delays the next.

    `stop` lets the look under way end, so that the last one shown is whole; cancelled, it ends at once, children too.
    """
    stop = stop or asyncio.Event()
    seen = 0
    while not stop.is_set():
        began = time.monotonic()
        show(await watcher.look())
        seen += 1
        if count is not None and seen >= count:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), max(0.0, began + interval_s - time.monotonic()))


def _canary(result: ProbeResult) -> CanarySight:
    return CanarySight(
        via=result.via,
        passed={Verdict.PROVEN: True, Verdict.NOT_PROVEN: False}.get(result.verdict),
        at=result.at,
        took_ms=result.took_ms,
        why=result.why,
    )
