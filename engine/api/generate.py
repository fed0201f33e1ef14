"""POST /generate, in SGLang's shape (0.5.23).

Streams carry the whole text and ids so far in each event, as SGLang's do. One difference: with
`logprob_start_len` k > 0 the first entry of `input_token_logprobs` has a value, where SGLang writes null.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from engine.api.answer import Answer
from engine.api.bodies import raw_body
from engine.api.openai import request_id_of
from engine.api.service import Service, service_of
from engine.config import Role
from engine.errors import RequestError
from engine.frontend.bodies import GenerateBody, GenerateKnobs, read_body
from engine.frontend.generation import Prompt, Work
from engine.frontend.grammars import grammar_of_schema
from engine.frontend.prompts import split_prompts, token_ids
from engine.frontend.rendezvous import rooms_of
from engine.frontend.sampling import Length, Logprobs, check_ranges, choose_sampling, choose_stops
from engine.frontend.sequence import Piece
from engine.messages import FinishReason, TokenLogprob

DEFAULT_MAX_TOKENS = 128
"""SGLang's default for this route."""

TokenTuple = tuple[float | None, int, str | None]
"""Logprob, token id, and its text when `return_text_in_logprobs`."""


class MetaInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    id: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    finish_reason: dict[str, str | int] | None
    e2e_latency: float
    """Seconds from the request's arrival."""
    input_token_logprobs: list[TokenTuple] | None = None
    output_token_logprobs: list[TokenTuple] | None = None
    input_top_logprobs: list[list[TokenTuple] | None] | None = None
    output_top_logprobs: list[list[TokenTuple] | None] | None = None


class GenerateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    output_ids: list[int]
    meta_info: MetaInfo
    index: int


async def generate(request: Request) -> Response:
    """Continue one prompt or several, given as text or ids."""
    service = service_of(request)
    received_at = service.clock.wall()
    body = read_body(await raw_body(request), GenerateBody)
    service.check_serving()
    service.check_model(body.model)
    work = await _work(request, body, service, received_at)
    return Answer(service, work, GenerateDialect(service, work, body))


async def _work(request: Request, body: GenerateBody, service: Service, received_at: float) -> Work:
    name, prompts = _prompts(body)
    knobs = _knobs_of_each(body, len(prompts))
    checked = []
    for prompt, each in zip(prompts, knobs, strict=True):
        checked.append(await _prompt(prompt, name, each, body, service))
    choices = knobs[0].n or 1
    scoring = all(each.max_new_tokens == 0 for each in knobs)
    return Work(
        request_id=request_id_of(request, body.rid),
        prompts=checked,
        choices=choices,
        stream=bool(body.stream),
        rooms=rooms_of(body, len(prompts), choices, service.config, scoring),
        received_at=received_at,
    )


def _prompts(body: GenerateBody) -> tuple[str, list[str | list[int]]]:
    """Return the name of the field that has the prompts, and the prompts."""
    if (body.text is None) == (body.input_ids is None):
        raise RequestError(400, "invalid_value", "give either text or input_ids", "text")
    if body.text is not None:
        return "text", split_prompts(body.text if isinstance(body.text, str) else [*body.text], "text")
    return "input_ids", split_prompts([*(body.input_ids or ())], "input_ids")


def _knobs_of_each(body: GenerateBody, prompts: int) -> list[GenerateKnobs]:
    given = body.sampling_params or GenerateKnobs()
    knobs = given if isinstance(given, list) else [given] * prompts
    if len(knobs) != prompts:
        message = f"sampling_params: {len(knobs)} entries for {prompts} prompts"
        raise RequestError(400, "invalid_value", message, "sampling_params")
    if len({each.n or 1 for each in knobs}) != 1:
        raise RequestError(400, "invalid_value", "sampling_params: n must be the same for all prompts", "n")
    return knobs


async def _prompt(
    prompt: str | list[int], name: str, knobs: GenerateKnobs, body: GenerateBody, service: Service
) -> Prompt:
    check_ranges(knobs)
    ids = await token_ids(prompt, service.tokenizer, name, limits=service.limits)
    min_tokens = knobs.min_tokens if knobs.min_new_tokens is None else knobs.min_new_tokens
    length = Length(knobs.max_new_tokens, "max_new_tokens", DEFAULT_MAX_TOKENS, min_tokens)
    grammar = None if knobs.json_schema is None else grammar_of_schema(knobs.json_schema, "json_schema")
    await service.grammars.check(grammar, "json_schema")
    logprobs = _wanted_logprobs(body, len(ids), service.config.role)
    sampling = choose_sampling(knobs, length, logprobs, len(ids), service.limits, grammar)
    return Prompt(ids, sampling, choose_stops(knobs.stop))


def _wanted_logprobs(body: GenerateBody, prompt_tokens: int, role: Role) -> Logprobs:
    if not body.return_logprob:
        return Logprobs()
    start = -1 if body.logprob_start_len is None else body.logprob_start_len
    if not -1 <= start <= prompt_tokens:
        message = f"logprob_start_len: {start} is not from -1 to the prompt's {prompt_tokens} tokens"
        raise RequestError(400, "invalid_value", message, "logprob_start_len")
    # Decode computes no prompt: the router takes the prompt's logprobs from the prefill leg.
    of_prompt = None if start == -1 or role is Role.DECODE else start
    return Logprobs(True, body.top_logprobs_num or 0, of_prompt, name="top_logprobs_num")


@dataclass(slots=True)
class Transcript:
    """All that was said of one sequence so far."""

    text: str = ""
    output_ids: list[int] = field(default_factory=list)
    of_prompt: list[TokenLogprob | None] = field(default_factory=list)
    of_output: list[TokenLogprob] = field(default_factory=list)
    cached_tokens: int = 0
    last: Piece | None = None

    def add(self, piece: Piece) -> None:
        """Append a piece."""
        self.text += piece.text
        self.output_ids += piece.token_ids
        self.of_prompt += piece.prompt_logprobs or ()
        self.of_output += piece.logprobs or ()
        self.cached_tokens = max(self.cached_tokens, piece.cached_tokens)
        self.last = piece


class GenerateDialect:
    """Writes SGLang's answers; each event repeats what was said before, with the new tokens added."""

    def __init__(self, service: Service, work: Work, body: GenerateBody) -> None:
        self._clock = service.clock
        self._tokenizer = service.tokenizer if body.return_text_in_logprobs else None
        self._work = work
        self._wants_logprobs = bool(body.return_logprob)
        self._wants_top = bool(body.top_logprobs_num)
        self._is_batch = work.sequences > 1 or _is_list(body)
        self._transcripts = [Transcript() for _ in range(work.sequences)]

    def opening(self) -> Iterable[object]:
        return ()

    def events(self, piece: Piece) -> Iterable[object]:
        self._transcripts[piece.index].add(piece)
        yield self._answer(piece.index)

    def closing(self) -> Iterable[object]:
        return ()

    def whole(self, pieces: list[Piece]) -> object:
        for piece in pieces:
            self._transcripts[piece.index].add(piece)
        answers = [self._answer(index) for index in range(self._work.sequences)]
        return answers if self._is_batch else answers[0]

    def _answer(self, index: int) -> GenerateAnswer:
        said = self._transcripts[index]
        return GenerateAnswer(
            text=said.text, output_ids=said.output_ids, meta_info=self._meta(index, said), index=index
        )

    def _meta(self, index: int, said: Transcript) -> MetaInfo:
        meta = MetaInfo(
            id=self._work.request_id + (f"-{index}" if self._is_batch else ""),
            prompt_tokens=len(self._work.prompt_of(index).token_ids),
            completion_tokens=len(said.output_ids),
            cached_tokens=said.cached_tokens,
            finish_reason=_finish_reason(said.last, len(said.output_ids)),
            e2e_latency=self._clock.wall() - self._work.received_at,
        )
        if self._wants_logprobs:
            self._add_logprobs(meta, index, said)
        return meta

    def _add_logprobs(self, meta: MetaInfo, index: int, said: Transcript) -> None:
        prompt = self._work.prompt_of(index)
        start = prompt.sampling.prompt_logprobs_start
        meta.input_token_logprobs = self._tuples(said.of_prompt, prompt.token_ids[start:])
        meta.output_token_logprobs = self._tuples(said.of_output, ())
        if self._wants_top:
            meta.input_top_logprobs = [self._top(record) for record in said.of_prompt]
            meta.output_top_logprobs = [self._top(record) for record in said.of_output]

    def _tuples(self, records: Sequence[TokenLogprob | None], ids: Sequence[int]) -> list[TokenTuple]:
        return [
            self._tuple(None, ids[at]) if record is None else self._tuple(record.logprob, record.token_id)
            for at, record in enumerate(records)
        ]

    def _top(self, record: TokenLogprob | None) -> list[TokenTuple] | None:
        return None if record is None else [self._tuple(logprob, token_id) for token_id, logprob in record.top]

    def _tuple(self, logprob: float | None, token_id: int) -> TokenTuple:
        return (logprob, token_id, self._tokenizer.token_text(token_id) if self._tokenizer else None)


def _is_list(body: GenerateBody) -> bool:
    """Return whether the client gave a list of prompts, and so expects a list, even of one."""
    return isinstance(body.text, list) or isinstance((body.input_ids or [0])[0], list)


def _finish_reason(piece: Piece | None, tokens: int) -> dict[str, str | int] | None:
    if piece is None or piece.finish is None:
        return None
    if piece.finish is FinishReason.LENGTH:
        return {"type": "length", "length": tokens}
    return {"type": "stop"} if piece.matched is None else {"type": "stop", "matched": piece.matched}
