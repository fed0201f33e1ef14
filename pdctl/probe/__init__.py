"""The data-plane request: proves that KV really travels, and says how long each stage took."""

from pdctl.probe.prove import DEFAULT_PROMPT_TOKENS, DEFAULT_TIMEOUT_S, prove
from pdctl.probe.report import Output, ProbeReport, ProbeResult, Stage, StageTime, Verdict

__all__ = [
    "DEFAULT_PROMPT_TOKENS",
    "DEFAULT_TIMEOUT_S",
    "Output",
    "ProbeReport",
    "ProbeResult",
    "Stage",
    "StageTime",
    "Verdict",
    "prove",
]
