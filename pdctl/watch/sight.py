"""What one look showed: the record behind the live table, the JSON lines and the metrics."""

from __future__ import annotations

from datetime import datetime

import msgspec

from pdctl.diagnose.report import Report
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Gauge
from pdctl.evidence.model import Evidence

QUEUES = (
    Gauge.WAITING,
    Gauge.BOOTSTRAP,
    Gauge.PREALLOC,
    Gauge.TRANSFER,
    Gauge.INFLIGHT,
    Gauge.FETCH_DONE,
)
"""Where a request of an engine can wait."""
_FAILURES = (Counter.TRANSFERS_FAILED, Counter.BOOTSTRAPS_FAILED, Counter.REQUESTS_FAILED)
_TOKENS = (Counter.PREFILL_TOKENS, Counter.DECODE_TOKENS)


class InstanceSight(msgspec.Struct, frozen=True, kw_only=True):
    """One instance. None is unknown: its family does not tell, or it did not answer."""

    name: str
    role: str
    state: str
    """`ok`, or in a word what is wrong: stopped, gone, silent, unwell."""
    running: float | None = None
    queues: dict[str, float] = {}
    """What waits, by what it waits for."""
    oldest_s: float | None = None
    requests_s: float | None = None
    """Requests that ended well, a second."""
    tokens_s: float | None = None
    kv_mb_s: float | None = None
    """10^6 bytes of KV a second."""
    failed: float | None = None
    """Failures within the window."""

    @property
    def waiting(self) -> float | None:
        """Return how many wait for anything at all."""
        return sum(self.queues.values()) if self.queues else None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A cause that stands."""

    code: str
    label: str
    level: str
    instance: str
    message: str


class CanarySight(msgspec.Struct, frozen=True, kw_only=True):
    """The last canary of one way."""

    via: str
    passed: bool | None
    """None: it was answered, and neither proven nor refuted."""
    at: float
    """Unix time at which it was sent."""
    took_ms: float
    why: str


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a deployment."""

    schema: str = "pdctl.watch/1"
    deployment: str
    at: datetime | None
    verdict: str
    """Of this look alone."""
    confirmed: str
    """The last verdict that two consecutive looks agreed on."""
    confirmed_since: datetime | None
    window_s: float | None
    """Seconds between the two samples that were compared."""
    took_s: float
    instances: tuple[InstanceSight, ...]
    causes: tuple[Finding, ...] = ()
    symptoms: tuple[str, ...] = ()
    canaries: tuple[CanarySight, ...] = ()


def instance_sights(evidence: Evidence) -> tuple[InstanceSight, ...]:
    """Return one row an instance; rates are over the evidence's two samples."""
    return tuple(_instance(InstanceView(item, evidence)) for item in evidence.instances)


def findings(report: Report) -> tuple[Finding, ...]:
    """Return the causes that stand, best first."""
    return tuple(
        Finding(
            code=cause.code,
            label=cause.label,
            level=cause.level,
            instance=cause.subject.instance,
            message=cause.message,
        )
        for cause in report.firm
    )


def _instance(view: InstanceView) -> InstanceSight:
    queues = {gauge.value: reading.value for gauge in QUEUES if (reading := view.gauge(gauge)) is not None}
    return InstanceSight(
        name=view.name,
        role=view.role,
        state=_state(view),
        running=_level(view, Gauge.FRONT_INFLIGHT if view.is_router else Gauge.RUNNING),
        queues=queues,
        oldest_s=view.oldest_age_s(Gauge.HTTP_ACTIVE),
        requests_s=_rate(view, Counter.REQUESTS_DONE),
        tokens_s=_rate(view, *_TOKENS),
        kv_mb_s=_rate(view, Counter.KV_BYTES, per=1e6),
        # One failed request may count in several of these.
        failed=max((rise.value for counter in _FAILURES if (rise := view.rise(counter)) is not None), default=None),
    )


def _state(view: InstanceView) -> str:
    if any(process.state == "T" for process in view.processes):
        return "stopped"
    if view.is_alive is False:
        return "gone"
    if view.is_alive is None or (view.is_hanging and view.health is None):
        return "silent"
    return "ok" if view.health in (200, None) else "unwell"


def _level(view: InstanceView, gauge: Gauge) -> float | None:
    reading = view.gauge(gauge)
    return None if reading is None else reading.value


def _rate(view: InstanceView, *counters: Counter, per: float = 1.0) -> float | None:
    rises = [rise.value for counter in counters if (rise := view.rise(counter)) is not None]
    return round(sum(rises) / view.interval_s / per, 3) if rises and view.interval_s else None
