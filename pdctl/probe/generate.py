"""A probe of our own engine: /generate, stages from its room records, tokens scored by prefill."""

from __future__ import annotations

from collections.abc import Sequence

from pdctl.collect.http import InstanceClient
from pdctl.deployment.model import Instance, Role
from pdctl.probe.exchange import Exchange
from pdctl.probe.judgement import Observed, SeenLegs, decoded, result_of
from pdctl.probe.kv_bytes import kv_shape
from pdctl.probe.prompt import fresh_id, fresh_nonce, sized_text
from pdctl.probe.report import Output, ProbeResult
from pdctl.probe.rooms import RoomReader, SeenLeg
from pdctl.probe.run import RECORDS_POLL_S, RECORDS_WAIT_S, Run
from pdctl.probe.scoring import Score, score, token_ids
from pdctl.probe.targets import Target

OUTPUT_TOKENS = 8


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
    reader = RoomReader(run.clients_of(target.engines), run.wall)
    with Exchange(target, locks, request_id, run.on_left(target)) as exchange:
        got = exchange.at_once("/generate", body, run.timeout_s)
        legs = _legs(reader, request_id, run, must_have_ended=got.failed is None)
    seen = SeenLegs.of(legs)
    answer = decoded(got)
    scored = Score(Output.UNCHECKED, "no answer to check")
    if answer is not None:
        run.progress(f"{target.via}: answered; checking the tokens")
        scored = _scored(target, run, seen, text, answer.output_ids)
    observed = Observed(
        got=got,
        answer=answer,
        legs=legs,
        seen=seen,
        unread=reader.unread,
        scored=scored,
        shape=kv_shape(run.clients[seen.decode.instance]) if answer and seen.decode else None,
        held_by=exchange.held_by,
    )
    return result_of(request_id, target, observed, run.timeout_s)


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


def _scored(target: Target, run: Run, seen: SeenLegs, text: str, output_ids: Sequence[int]) -> Score:
    """Have the prefill that served the request score the answer (a unified instance scores its own)."""
    scorer = _scorer(target, seen)
    client = run.clients[scorer.name]
    prompt_ids = token_ids(client, text)
    if prompt_ids is None:
        return Score(Output.UNCHECKED, f"{scorer.name} does not tell the prompt's token ids (POST /tokenize)")
    return score(client, prompt_ids, output_ids, fresh_id(), run.timeout_s)


def _scorer(target: Target, seen: SeenLegs) -> Instance:
    candidates = target.of_role(Role.PREFILL) or target.engines
    served = [engine for engine in candidates if seen.prefill and engine.name == seen.prefill.instance]
    return (served or list(candidates))[0]
