"""What a probe found out; immutable."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Stage(StrEnum):
    """Points in a probe's life, in their usual order. Ours shows all but the bytes, others the bytes."""

    SENT = "sent"
    ROUTER_ACCEPTED = "router_accepted"
    """The first leg arrived at an engine."""
    PREFILL_QUEUED = "prefill_queued"
    PAIRED = "paired"
    PREFILL_COMPUTED = "prefill_computed"
    KV_LANDED = "kv_landed"
    FIRST_BYTE = "first_byte"
    """The first byte of the answer came back to us."""
    FIRST_TOKEN = "first_token"
    LAST_TOKEN = "last_token"
    LAST_BYTE = "last_byte"


class Output(StrEnum):
    """What is known of the text."""

    SAME = "same"
    """Prompt and answer scored in one pass: every token is the model's choice, within the tolerance."""
    CLOSE = "close"
    """The known answer is in the text."""
    GARBLED = "garbled"
    UNCHECKED = "unchecked"


class Verdict(StrEnum):
    PROVEN = "proven"
    NOT_PROVEN = "not_proven"
    UNKNOWN = "unknown"


EXIT_CODES = {Verdict.PROVEN: 0, Verdict.NOT_PROVEN: 1, Verdict.UNKNOWN: 3}


class StageTime(msgspec.Struct, frozen=True, kw_only=True):
    """When a stage was reached: milliseconds since the request was sent, and since the stage before."""

    stage: Stage
    at_ms: float
    took_ms: float


class ProbeResult(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Names follow `probe.toml` of an incident directory."""

    id: str
    """X-Request-ID of the request."""
    via: str
    """`router`, the name of an instance, or `PREFILL -> DECODE`."""
    pair: tuple[str, str] | None = None
    """The prefill and the decode that served it, where known."""
    at: float
    """Unix time at which it was sent."""
    verdict: Verdict
    why: str
    """One sentence: what proves it, or what is wrong."""
    stage: Stage | None
    """The last stage that was reached; None where nothing could be sent."""
    status: int | None = None
    """Of the leg that failed first, else of the answer."""
    took_ms: float
    timeout_ms: float
    error: str | None = None
    """An outcome word (refused, timeout, reset, ...), when no whole answer came."""
    output: Output = Output.UNCHECKED
    stages: tuple[StageTime, ...] = ()
    unseen: tuple[Stage, ...] = ()
    """Stages that this kind of engine does not show."""
    ttft_ms: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    kv_bytes: int | None = None
    kv_gb_s: float | None = None
    """10^9 bytes a second, from the first read posted to the last one done, summed over the chunks."""
    text: str | None = None
    live: tuple[str, ...] = ()
    """What `/rooms` of the engines says of it now, when it has not ended."""
    held_by: tuple[int, ...] = ()
    """Processes that keep its connections open, because closing them could hurt others."""


class ProbeReport(msgspec.Struct, frozen=True, kw_only=True):
    """Every request of one run."""

    deployment: str
    results: tuple[ProbeResult, ...]
    notes: tuple[str, ...] = ()
    """What pdctl could not look at before or beside the requests."""

    @property
    def verdict(self) -> Verdict:
        """Return the worst verdict; unknown where nothing was sent."""
        seen = {result.verdict for result in self.results} or {Verdict.UNKNOWN}
        return next(v for v in (Verdict.NOT_PROVEN, Verdict.UNKNOWN, Verdict.PROVEN) if v in seen)

    @property
    def exit_code(self) -> int:
        """Return 0 proven, 1 not proven, 3 could not tell."""
        return EXIT_CODES[self.verdict]
