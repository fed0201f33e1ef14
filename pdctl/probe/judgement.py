"""From what was observed of a request on our engine to its verdict; no I/O."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pdctl.deployment.model import Role
from pdctl.probe.exchange import Exchanged, failure_words
from pdctl.probe.kv_bytes import KvShape, kv_problem
from pdctl.probe.report import Output, ProbeResult, Stage, StageTime, Verdict
from pdctl.probe.rooms import SeenLeg, describe_live, stage_times
from pdctl.probe.scoring import Score
from pdctl.probe.targets import Target


class Generated(msgspec.Struct, frozen=True):
    """The answer of /generate."""

    text: str
    output_ids: list[int]


class SeenLegs(msgspec.Struct, frozen=True):
    """The two legs among the records; None where no engine told of one."""

    prefill: SeenLeg | None
    decode: SeenLeg | None

    @classmethod
    def of(cls, legs: Sequence[SeenLeg]) -> SeenLegs:
        """Pick them by role."""
        by_role = {leg.record.role: leg for leg in legs}
        return cls(by_role.get("prefill"), by_role.get("decode"))

    @property
    def pair(self) -> tuple[str, str] | None:
        """Return the instances that served the request."""
        return (self.prefill.instance, self.decode.instance) if self.prefill and self.decode else None

    @property
    def prompt_tokens(self) -> int | None:
        """Return the prompt's length."""
        leg = self.decode or self.prefill
        return leg.record.prompt_tokens if leg else None

    @property
    def kv_gb_s(self) -> float | None:
        """Return 10^9 bytes a second over the reads of all chunks."""
        record = self.decode.record if self.decode else None
        if record is None or not record.kv_bytes or record.transfer_s <= 0:
            return None
        return record.kv_bytes / record.transfer_s / 1e9


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of one request."""

    got: Exchanged
    answer: Generated | None
    legs: tuple[SeenLeg, ...]
    seen: SeenLegs
    unread: dict[str, str]
    """Engines whose rooms could not be read, and why."""
    scored: Score
    shape: KvShape | None
    held_by: tuple[int, ...]


def decoded(got: Exchanged) -> Generated | None:
    """Return the answer, or None where there is none that can be read."""
    if got.answer is None or not got.answer.ok:
        return None
    try:
        return msgspec.json.decode(got.answer.body, type=Generated)
    except msgspec.DecodeError:
        return None


def result_of(request_id: str, target: Target, observed: Observed, timeout_s: float) -> ProbeResult:
    """Return the result of a request."""
    got, answer, seen = observed.got, observed.answer, observed.seen
    stages = stage_times(observed.legs, got.sent_at, by_router=target.entry.role is Role.ROUTER)
    verdict, why = _verdict(target, observed, timeout_s)
    return ProbeResult(
        id=request_id,
        via=target.via,
        pair=seen.pair,
        at=got.sent_at,
        verdict=verdict,
        why=why,
        stage=stages[-1].stage if stages else Stage.SENT if got.is_sent else None,
        status=got.status,
        took_ms=got.took_ms(timeout_s),
        timeout_ms=timeout_s * 1000,
        error=got.error,
        output=observed.scored.output,
        stages=stages,
        ttft_ms=_at(stages, Stage.FIRST_TOKEN),
        prompt_tokens=seen.prompt_tokens,
        output_tokens=len(answer.output_ids) if answer else None,
        cached_tokens=seen.decode.record.cached_tokens if seen.decode else None,
        kv_bytes=seen.decode.record.kv_bytes if seen.decode else None,
        kv_gb_s=seen.kv_gb_s,
        text=answer.text if answer else None,
        live=() if verdict is Verdict.PROVEN else (*describe_live(observed.legs), *_unread(observed)),
        held_by=observed.held_by,
    )


def _verdict(target: Target, observed: Observed, timeout_s: float) -> tuple[Verdict, str]:
    seen, scored = observed.seen, observed.scored
    if observed.got.failed is not None:
        return Verdict.NOT_PROVEN, failure_words(observed.got, timeout_s)
    if observed.answer is None:
        return Verdict.NOT_PROVEN, "the answer is not what /generate answers"
    if scored.output is Output.GARBLED:
        return Verdict.NOT_PROVEN, scored.why
    if target.of_role(Role.DECODE):
        if seen.prefill is None or seen.decode is None:
            told = "; ".join(observed.unread.values()) or "no record of this request in /rooms/recent"
            return Verdict.UNKNOWN, f"answered, but whether KV travelled cannot be seen: {told}"
        problem = kv_problem(seen.prefill.record, seen.decode.record, observed.shape)
        if problem is not None:
            return Verdict.NOT_PROVEN, problem
    if scored.output is Output.UNCHECKED:
        return Verdict.UNKNOWN, f"answered, but the tokens could not be checked: {scored.why}"
    return Verdict.PROVEN, scored.why


def _unread(observed: Observed) -> tuple[str, ...]:
    return tuple(f"{name}: does not tell its rooms ({why})" for name, why in observed.unread.items())


def _at(stages: Sequence[StageTime], wanted: Stage) -> float | None:
    return next((item.at_ms for item in stages if item.stage is wanted), None)
