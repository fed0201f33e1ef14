"""Which signal tables an instance is read with."""

from __future__ import annotations

from pdctl.dialects import (
    dynamo_signals,
    pdctl_signals,
    router_signals,
    sglang_signals,
    shared_signals,
    trtllm_signals,
    vllm_signals,
)
from pdctl.dialects.signals import Batch, Pattern, Series

_ENGINES = (
    sglang_signals.SGLANG_SIGNALS,
    vllm_signals.VLLM_SIGNALS,
    trtllm_signals.TRTLLM_SIGNALS,
    pdctl_signals.PDCTL_SIGNALS,
)
_ROUTERS = (router_signals.SMG_SIGNALS, router_signals.VLLM_ROUTER_SIGNALS, router_signals.LLM_D_SIGNALS)
_DYNAMO = dynamo_signals.DYNAMO_SIGNALS

# Names are disjoint between families, and a Dynamo worker re-exports its engine's: so every engine is read with all of
# them, and a folder whose dialect is missing or wrong is still understood.
SERIES: tuple[Series, ...] = (
    *(row for table in _ENGINES for row in table.series),
    *(row for table in _ROUTERS for row in table.series),
    *_DYNAMO.series,
)
AGES: tuple[Series, ...] = tuple(row for table in _ENGINES for row in table.ages)
BATCHES: tuple[Batch, ...] = (*(row for table in _ENGINES for row in table.batches), *shared_signals.BATCHES)
ENGINE_PATTERNS: tuple[Pattern, ...] = (
    *(row for table in _ENGINES for row in table.patterns),
    *_DYNAMO.patterns,
    *shared_signals.PATTERNS,
)
ROUTER_PATTERNS: tuple[Pattern, ...] = (
    *router_signals.PATTERNS,
    *_DYNAMO.patterns,
    *shared_signals.PATTERNS,
)
LOADS = sglang_signals.SGLANG_SIGNALS.loads
ECHO = shared_signals.ECHO
QUOTED = shared_signals.QUOTED
