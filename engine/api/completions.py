"""POST /v1/completions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from engine.api.answer import Answer
from engine.api.bodies import raw_body
from engine.api.openai import check_openai, request_id_of
from engine.api.records import Tally, Usage
from engine.api.service import Service, service_of
from engine.config import Role
from engine.errors import RequestError
from engine.frontend.bodies import CompletionBody, read_body
from engine.frontend.detokenizer import Detokenizer
from engine.frontend.generation import Prompt, Work
from engine.frontend.grammars import grammar_of_format
from engine.frontend.prompts import split_prompts, token_ids
from engine.frontend.rendezvous import rooms_of
from engine.frontend.sampling import Length, Logprobs, check_ranges, choose_sampling, choose_stops
from engine.frontend.sequence import Piece
from engine.frontend.tokenizer import Tokenizer
from engine.messages import TokenLogprob

DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for this route."""


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """Parallel lists, one entry a token; the first prompt token has no logprob."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    matched_stop: str | int | None = None


class CompletionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    """As in chunks of a chat."""


async def completions(request: Request) -> Response:
    """Continue one prompt or several; streamed when the body says so."""
    service = service_of(request)
    received_at = service.clock.wall()
    body = read_body(await raw_body(request), CompletionBody)
    service.check_serving()
    service.check_model(body.model)
    check_openai(body)
    work = await _work(request, body, service, received_at)
    return Answer(service, work, CompletionDialect(service, work, body))


async def _work(request: Request, body: CompletionBody, service: Service, received_at: float) -> Work:
    check_ranges(body)
    length = Length(body.max_tokens, "max_tokens", DEFAULT_MAX_TOKENS, body.min_tokens)
    logprobs = _wanted_logprobs(body, service.config.role)
    grammar = grammar_of_format(body.response_format)
    await service.grammars.check(grammar, "response_format")
    stops, prompts = choose_stops(body.stop), []
    for prompt in split_prompts(body.prompt, "prompt"):
        ids = await token_ids(prompt, service.tokenizer, "prompt", limits=service.limits)
        sampling = choose_sampling(body, length, logprobs, len(ids), service.limits, grammar)
        prompts.append(Prompt(ids, sampling, stops))
    choices = body.n or 1
    return Work(
        request_id=request_id_of(request, body.rid),
        prompts=prompts,
        choices=choices,
        stream=bool(body.stream),
        rooms=rooms_of(body, len(prompts), choices, service.config, scoring=body.max_tokens == 0),
        received_at=received_at,
    )


def _wanted_logprobs(body: CompletionBody, role: Role) -> Logprobs:
    # smg writes `logprobs: false` where the client wrote nothing.
    if body.logprobs is None or body.logprobs is False:
        return Logprobs()
    if body.echo and role is Role.DECODE:
        message = "logprobs: with echo they are those of the prompt, which decode does not compute; use /generate"
        raise RequestError(400, "unsupported", message, "logprobs")
    return Logprobs(True, int(body.logprobs), 0 if body.echo else None, name="logprobs")


class CompletionDialect:
    """Writes OpenAI text completions, whole and in chunks."""

    def __init__(self, service: Service, work: Work, body: CompletionBody) -> None:
        self._tokenizer = service.tokenizer
        self._work = work
        self._echo = bool(body.echo)
        self._logprobs = body.logprobs is not None and body.logprobs is not False
        self._wants_usage = bool(body.stream_options and body.stream_options.include_usage)
        self._tally = Tally(work)
        self._id = f"cmpl-{work.request_id}"
        self._created = int(work.received_at)
        self._model = service.config.served_name
        self._answers = [_Characters(self._tokenizer) for _ in range(work.sequences)]
        self._begun: set[int] = set()

    def opening(self) -> Iterable[object]:
        return ()

    def events(self, piece: Piece) -> Iterable[object]:
        self._tally.add(piece)
        first = piece.index not in self._begun
        self._begun.add(piece.index)
        choice = self._choice(piece.index, [piece], self._echo and first)
        if choice.text or choice.finish_reason or choice.logprobs:
            yield self._answer([choice], None if self._wants_usage else msgspec.UNSET)

    def closing(self) -> Iterable[object]:
        if self._wants_usage:
            yield self._answer([], self._tally.usage())

    def whole(self, pieces: list[Piece]) -> object:
        for piece in pieces:
            self._tally.add(piece)
        choices = [
            self._choice(index, of_choice, self._echo) for index, of_choice in enumerate(self._work.by_sequence(pieces))
        ]
        return self._answer(choices, self._tally.usage())

    def _choice(self, index: int, pieces: list[Piece], echo: bool) -> CompletionChoice:
        prompt_ids = self._work.prompt_of(index).token_ids
        prompt_text = self._tokenizer.decode(prompt_ids, skip_special=True) if echo else ""
        return CompletionChoice(
            index=index,
            text=prompt_text + "".join(piece.text for piece in pieces),
            logprobs=self._choice_logprobs(index, pieces, prompt_text, echo) if self._logprobs else None,
            finish_reason=pieces[-1].finish,
            matched_stop=pieces[-1].matched,
        )

    def _choice_logprobs(self, index: int, pieces: list[Piece], prompt_text: str, echo: bool) -> CompletionLogprobs:
        records = [record for piece in pieces for record in piece.prompt_logprobs or ()] if echo else []
        ids = self._work.prompt_of(index).token_ids[: len(records)]
        offsets = _Characters(self._tokenizer).before_each(ids)
        answer = self._answers[index]
        answer.count += len(prompt_text)
        said = [record for piece in pieces for record in (piece.logprobs or ())[: piece.text_tokens]]
        output_ids = [token_id for piece in pieces for token_id in piece.token_ids][: len(said)]
        offsets += answer.before_each(output_ids)
        records += said
        return CompletionLogprobs(
            tokens=[self._tokenizer.token_name(token_id) for token_id in ids + output_ids],
            token_logprobs=[None if record is None else record.logprob for record in records],
            top_logprobs=[_top(record, self._tokenizer) for record in records],
            text_offset=offsets,
        )

    def _answer(self, choices: list[CompletionChoice], usage: Usage | msgspec.UnsetType | None) -> CompletionAnswer:
        return CompletionAnswer(id=self._id, created=self._created, model=self._model, choices=choices, usage=usage)


class _Characters:
    """Where in a text its tokens begin: tokens that make one character together begin at the same place."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.count = 0
        """Characters so far."""
        self._detokenizer = Detokenizer(tokenizer)

    def before_each(self, ids: list[int]) -> list[int]:
        """Take the next tokens; return how many characters stand before each."""
        offsets = []
        for token_id in ids:
            offsets.append(self.count)
            self.count += len(self._detokenizer.push([token_id]))
        return offsets


def _top(record: TokenLogprob | None, tokenizer: Tokenizer) -> dict[str, float] | None:
    """Return the alternatives by name, best first; the token itself is always among them (OpenAI)."""
    if record is None:
        return None
    top: dict[str, float] = {}
    for token_id, logprob in (*record.top, (record.token_id, record.logprob)):
        top.setdefault(tokenizer.token_name(token_id), logprob)
    return top
