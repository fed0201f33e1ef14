"""Changes to evidence that must not change the diagnosis."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import msgspec

from pdctl.evidence.model import Evidence, InstanceEvidence
from pdctl.evidence.records import Exposition, Get, LogLine, Process, Sample

SHIFT = timedelta(days=11, hours=5, minutes=17)
_COUNTER = re.compile(r"(_total|_count|_sum)$")

OTHER_CAUSES = (
    "Exception in thread Thread-3 (transfer_worker):",
    "prefill bootstrap_thread died on engine_rank=0",
    "NVRM: Xid (PCI:0000:5d:00): 79, pid=1, GPU has fallen off the bus.",
    "Out of memory: Killed process 4711 (sglang::schedul)",
    "Session 192.0.2.9:15990 failed.",
    "Page size mismatch: prefill 16, decode 64",
    "KV checksum mismatch for room 12",
)
"""Lines that decide for some other cause when they are real and of the running incarnation."""


def shifted(evidence: Evidence) -> Evidence:
    """Move everything by one and the same time."""
    return _over_instances(
        msgspec.structs.replace(
            evidence,
            captured_at=evidence.captured_at + SHIFT if evidence.captured_at else None,
            captured_prev_at=evidence.captured_prev_at + SHIFT if evidence.captured_prev_at else None,
            probes=tuple(
                msgspec.structs.replace(probe, at=probe.at + SHIFT if probe.at else None) for probe in evidence.probes
            ),
        ),
        _shift_instance,
    )


def _shift_instance(item: InstanceEvidence) -> InstanceEvidence:
    log = item.log
    return msgspec.structs.replace(
        item,
        log=tuple(msgspec.structs.replace(line, at=line.at + SHIFT if line.at else None) for line in log)
        if log is not None
        else None,
        processes=tuple(
            msgspec.structs.replace(one, started_at=one.started_at + SHIFT if one.started_at else None)
            for one in item.processes
        ),
    )


def renamed(evidence: Evidence) -> tuple[Evidence, dict[str, str]]:
    """Give every instance another name; return the evidence and old -> new."""
    names = {item.name: f"node-{index:02d}-x" for index, item in enumerate(evidence.instances)}
    return msgspec.structs.replace(
        evidence,
        instances=tuple(msgspec.structs.replace(item, name=names[item.name]) for item in evidence.instances),
        pairs=tuple((names.get(one, one), names.get(other, other)) for one, other in evidence.pairs),
        probes=tuple(msgspec.structs.replace(probe, via=names.get(probe.via, probe.via)) for probe in evidence.probes),
    ), names


def scaled(evidence: Evidence, factor: int = 3) -> Evidence:
    """Multiply every counter: a fleet that lived longer and served more."""

    def scale(scrape: Exposition | None) -> Exposition | None:
        if scrape is None:
            return None
        return msgspec.structs.replace(
            scrape,
            series={
                name: tuple(Sample(one.labels, one.value * (factor if _COUNTER.search(name) else 1)) for one in samples)
                for name, samples in scrape.series.items()
            },
        )

    return _over_instances(
        evidence,
        lambda item: msgspec.structs.replace(item, metrics=scale(item.metrics), metrics_prev=scale(item.metrics_prev)),
    )


def with_old_lines(evidence: Evidence) -> Evidence:
    """Put lines of other causes before the start of every instance whose start is known from its processes."""

    def add(item: InstanceEvidence) -> InstanceEvidence:
        starts = [one.started_at for one in item.processes if one.started_at and one.state != "gone"]
        if not starts or item.log is None or item.role == "router":
            return item
        at = min(starts) - timedelta(hours=3)
        old = tuple(
            LogLine(index, at, "", text, f"{item.name}/log.txt") for index, text in enumerate(OTHER_CAUSES[:3], 1)
        )
        return msgspec.structs.replace(item, log=(*old, *item.log))

    return _over_instances(evidence, add)


def with_echoes(evidence: Evidence) -> Evidence:
    """Let clients quote lines of other causes in their prompts, and let the engine print the prompts."""

    def add(item: InstanceEvidence) -> InstanceEvidence:
        if not item.log or item.role == "router":
            return item
        last = item.log[-1]
        quoted = tuple(
            LogLine(
                last.number + index,
                last.at,
                "",
                f"Received request cmpl-{index}: prompt: '{text}', params",
                last.file,
            )
            for index, text in enumerate(OTHER_CAUSES, 1)
        )
        return msgspec.structs.replace(item, log=(*item.log, *quoted))

    return _over_instances(evidence, add)


_IDLE = Exposition(
    {
        "pdengine_queue_length": (Sample({"queue": "running"}, 0.0), Sample({"queue": "waiting"}, 0.0)),
        "pdengine_steps_total": (Sample({}, 7.0),),
        "pdengine_requests_total": (Sample({"result": "stop"}, 3.0),),
    },
    "aside/metrics.txt",
)


def with_healthy_instance(evidence: Evidence) -> Evidence:
    """Add an engine of another deployment's kind, alive and idle."""
    extra = InstanceEvidence(
        name="aside",
        role="unified",
        dialect="pdctl",
        url="http://203.0.113.77:30000",
        tp=1,
        gets=(Get(path="/health", status=200, took_ms=3),),
        processes=(Process(pid=1, title="engine", state="S"),),
        metrics=_IDLE,
        metrics_prev=_IDLE,
    )
    return msgspec.structs.replace(evidence, instances=(*evidence.instances, extra))


def without_lines(evidence: Evidence, pattern: str) -> Evidence:
    """Take log lines away."""
    wanted = re.compile(pattern)
    return _over_instances(
        evidence,
        lambda item: msgspec.structs.replace(
            item,
            log=tuple(line for line in item.log if not wanted.search(line.message)) if item.log is not None else None,
        ),
    )


def _over_instances(evidence: Evidence, change: Callable[[InstanceEvidence], InstanceEvidence]) -> Evidence:
    return msgspec.structs.replace(evidence, instances=tuple(change(item) for item in evidence.instances))
