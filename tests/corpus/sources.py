"""Evidence without one kind of source."""

from __future__ import annotations

import msgspec

from pdctl.diagnose.answer import Kind
from pdctl.evidence.model import Evidence

_FIELDS: dict[Kind, dict[str, object]] = {
    Kind.METRICS: {"metrics": None, "metrics_prev": None, "loads": {}, "loads_prev": {}},
    Kind.LOG: {"log": None},
    Kind.STACKS: {"stacks": (), "stacks_prev": (), "native": ()},
    Kind.PROCESS: {"processes": ()},
    Kind.HTTP: {"gets": (), "gets_prev": ()},
    Kind.GPU: {"gpus": ()},
    Kind.SOURCE: {"source": None},
}


def without(evidence: Evidence, kind: Kind) -> Evidence:
    """Return the evidence as if nobody had collected that kind."""
    if kind is Kind.PROBE:
        return msgspec.structs.replace(evidence, probes=())
    fields = _FIELDS.get(kind, {})
    return msgspec.structs.replace(
        evidence, instances=tuple(msgspec.structs.replace(item, **fields) for item in evidence.instances)
    )
