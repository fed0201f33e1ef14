"""A probe of our own engine: /generate, stages from its room records, tokens scored by prefill."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pdctl.collect.http import InstanceClient, Outcome
from pdctl.deployment.model import Instance, Role
from pdctl.probe.exchange import Exchange, Exchanged, describe_failure
from pdctl.probe.kv_bytes import KvShape, kv_problem, kv_shape
from pdctl.probe.prompt import fresh_id, fresh_nonce, sized_text
from pdctl.probe.report import Output, ProbeResult, Stage, StageTime, Verdict
from pdctl.probe.rooms import RoomReader, SeenLeg, describe_live, stage_times
from pdctl.probe.run import RECORDS_POLL_S, RECORDS_WAIT_S, Run
from pdctl.probe.scoring import Score, score, token_ids
from pdctl.probe.targets import Target

OUTPUT_TOKENS = 8


class _Generated(msgspec.Struct, frozen=True):
    """The answer of /generate."""

    text: str
    output_ids: list[int]


def probe_generate(target: Target, locks: Sequence[int], run: Run) -> ProbeResult:
    """Send one request and say what became of it."""
    request_id = fresh_id()
    first = (target.of_role(Role.PREFILL) or target.engines)[0]
    text = sized_text(fresh_nonce(), run.prompt_tokens, lambda sample: _count(run.clients[first.name], sample))
    run.progress(f"{target.via}: sending {request_id}")
    body = {
        "text": text,
        # An answer that ended at its first token would move no KV, and prove nothing.
        "sampling_params": {"temperature": 0, "max_new_tokens": OUTPUT_TOKENS, "ignore_eos": True},
        "stream": False,
    }
    with Exchange(target, locks, request_id, run.on_left(target)) as exchange:
        got = exchange.at_once("/generate", body, run.timeout_s)
    reader = RoomReader(run.clients_of(target.engines), run.wall)
    legs = _legs(reader, request_id, run, must_have_ended=got.failed is None)
    return _judged(request_id, target, run, got, legs, reader, text)


def _count(client: InstanceClient, text: str) -> int | None:
    ids = token_ids(client, text)
    return None if ids is None else len(ids)


def _legs(reader: RoomReader, request_id: str, run: Run, *, must_have_ended: bool) -> tuple[SeenLeg, ...]:
    """Return the records; of an answered request, when all have ended or the wait is over."""
    deadline = run.wall() + RECORDS_WAIT_S
    while True:
        legs = reader.find(request_id)
        ended = bool(legs) and not any(leg.is_live for leg in legs)
        if ended or not must_have_ended or reader.unread or run.wall() >= deadline:
            return legs
        run.pause(RECORDS_POLL_S)


def _judged(
    request_id: str,
    target: Target,
    run: Run,
    got: Exchanged,
    legs: tuple[SeenLeg, ...],
    reader: RoomReader,
    text: str,
) -> ProbeResult:
    stages = stage_times(legs, got.sent_at, by_router=target.entry.role is Role.ROUTER)
    seen = _Seen.of(target, legs)
    score_of = Score(Output.UNCHECKED, "no answer to check")
    answer = _decoded(got)
    if answer is not None:
        run.progress(f"{target.via}: answered; checking the tokens")
        score_of = _scored(target, run, seen, text, answer.output_ids)
    shape = kv_shape(run.clients[seen.decode.instance]) if answer and seen.decode else None
    verdict, why = _verdict(target, got, answer, seen, reader.unread, score_of, shape)
    return ProbeResult(
        id=request_id,
        via=target.via,
        pair=seen.pair,
        at=got.sent_at,
        verdict=verdict,
        why=why,
        stage=stages[-1].stage if stages else Stage.SENT if got.is_sent else None,
        status=got.answer.status if got.answer else None,
        took_ms=_took_ms(got, run),
        timeout_ms=run.timeout_s * 1000,
        error=got.failed[1].outcome if got.failed and got.failed[1].outcome != Outcome.ANSWERED else None,
        output=score_of.output,
        stages=stages,
        ttft_ms=_at(stages, Stage.FIRST_TOKEN),
        prompt_tokens=seen.prompt_tokens,
        output_tokens=len(answer.output_ids) if answer else None,
        cached_tokens=seen.decode.record.cached_tokens if seen.decode else None,
        kv_bytes=seen.decode.record.kv_bytes if seen.decode else None,
        kv_gb_s=seen.kv_gb_s,
        text=answer.text if answer else None,
        live=() if verdict is Verdict.PROVEN else describe_live(legs),
        held_by=got.held_by,
    )


class _Seen(msgspec.Struct, frozen=True):
    """The two legs among the records."""

    prefill: SeenLeg | None
    decode: SeenLeg | None

    @classmethod
    def of(cls, target: Target, legs: Sequence[SeenLeg]) -> _Seen:
        by_role = {leg.record.role: leg for leg in legs}
        return cls(by_role.get("prefill"), by_role.get("decode"))

    @property
    def pair(self) -> tuple[str, str] | None:
        return (self.prefill.instance, self.decode.instance) if self.prefill and self.decode else None

    @property
    def prompt_tokens(self) -> int | None:
        leg = self.decode or self.prefill
        return leg.record.prompt_tokens if leg else None

    @property
    def kv_gb_s(self) -> float | None:
        record = self.decode.record if self.decode else None
        if record is None or not record.kv_bytes or record.transfer_s <= 0:
            return None
        return record.kv_bytes / record.transfer_s / 1e9


def _decoded(got: Exchanged) -> _Generated | None:
    if got.answer is None or not got.answer.ok:
        return None
    try:
        return msgspec.json.decode(got.answer.body, type=_Generated)
    except msgspec.DecodeError:
        return None


def _scored(target: Target, run: Run, seen: _Seen, text: str, output_ids: Sequence[int]) -> Score:
    """Have the prefill that served the request score the answer (a unified instance scores its own)."""
    scorer = _scorer(target, seen)
    client = run.clients[scorer.name]
    prompt_ids = token_ids(client, text)
    if prompt_ids is None:
        return Score(Output.UNCHECKED, f"{scorer.name} does not tell the prompt's token ids (POST /tokenize)")
    return score(client, prompt_ids, output_ids, fresh_id(), run.timeout_s)


def _scorer(target: Target, seen: _Seen) -> Instance:
    candidates = target.of_role(Role.PREFILL) or target.engines
    served = [engine for engine in candidates if seen.prefill and engine.name == seen.prefill.instance]
    return (served or list(candidates))[0]


def _verdict(
    target: Target,
    got: Exchanged,
    answer: _Generated | None,
    seen: _Seen,
    unread: dict[str, str],
    scored: Score,
    shape: KvShape | None,
) -> tuple[Verdict, str]:
    if got.failed is not None:
        return Verdict.NOT_PROVEN, describe_failure(*got.failed)
    if answer is None:
        return Verdict.NOT_PROVEN, "the answer is not what /generate answers"
    if scored.output is Output.GARBLED:
        return Verdict.NOT_PROVEN, f"the text is wrong: {scored.why}"
    if target.of_role(Role.DECODE):
        if seen.prefill is None or seen.decode is None:
            told = "; ".join(unread.values()) or "no record of this request in /rooms/recent"
            return Verdict.UNKNOWN, f"answered, but whether KV travelled cannot be seen: {told}"
        problem = kv_problem(seen.prefill.record, seen.decode.record, shape)
        if problem is not None:
            return Verdict.NOT_PROVEN, problem
    if scored.output is Output.UNCHECKED:
        return Verdict.UNKNOWN, f"answered, but the tokens could not be checked: {scored.why}"
    return Verdict.PROVEN, scored.why


def _took_ms(got: Exchanged, run: Run) -> float:
    ends = [end.end_at for end in got.legs.values() if end.end_at is not None]
    until = max(ends) if len(ends) == len(got.legs) and ends else got.sent_at + run.timeout_s
    return round((until - got.sent_at) * 1000, 3)


def _at(stages: Sequence[StageTime], wanted: Stage) -> float | None:
    return next((item.at_ms for item in stages if item.stage is wanted), None)
