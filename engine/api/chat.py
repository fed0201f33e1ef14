"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from engine.api.answer import Answer
from engine.api.bodies import raw_body
from engine.api.chat_calls import CallReader, ToolCall, ToolCallDelta
from engine.api.openai import check_openai, request_id_of
from engine.api.records import Tally, Usage
from engine.api.service import Service, service_of
from engine.errors import RequestError
from engine.frontend.bodies import ChatBody, read_body
from engine.frontend.generation import Prompt, Work
from engine.frontend.grammars import grammar_of_format
from engine.frontend.prompts import chat_text, token_ids
from engine.frontend.rendezvous import rooms_of
from engine.frontend.sampling import Length, Logprobs, choose_sampling, choose_stops
from engine.frontend.sequence import Piece
from engine.frontend.tokenizer import Tokenizer
from engine.frontend.tool_calls import format_of
from engine.frontend.tool_use import ToolUse, tool_use_of
from engine.messages import FinishReason, TokenLogprob


class TopToken(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]


class TokenRecord(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopToken]


class ChoiceLogprobs(msgspec.Struct, frozen=True):
    content: list[TokenRecord]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str | None
    """None when there is nothing but calls."""
    tool_calls: list[ToolCall] | msgspec.UnsetType = msgspec.UNSET


class MessageDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    role: str | None = None
    content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    message: Message
    logprobs: ChoiceLogprobs | None
    finish_reason: str | None
    matched_stop: str | int | None


class ChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    delta: MessageDelta
    logprobs: ChoiceLogprobs | None = None
    finish_reason: str | None = None


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | msgspec.UnsetType | None
    """Unset unless it was asked for; null but in the last chunk."""


async def chat_completions(request: Request) -> Response:
    """Answer a chat; streamed when the body says so."""
    service = service_of(request)
    received_at = service.clock.wall()
    body = read_body(await raw_body(request), ChatBody)
    service.check_serving()
    service.check_model(body.model)
    check_openai(body)
    tools = tool_use_of(body, format_of(service.tokenizer.chat_template))
    work = await _work(request, body, service, received_at, tools)
    wants_usage = bool(body.stream_options and body.stream_options.include_usage)
    return Answer(service, work, ChatDialect(service, work, wants_usage, tools))


async def _work(request: Request, body: ChatBody, service: Service, received_at: float, tools: ToolUse | None) -> Work:
    tokenizer, choices = service.tokenizer, body.n or 1
    generation_prompt = body.add_generation_prompt is not False
    shown = None if tools is None else [msgspec.to_builtins(tool) for tool in tools.offered]
    text = chat_text(service.template, body.messages, shown, generation_prompt, body.chat_template_kwargs)
    ids = await token_ids(text, tokenizer, "messages", add_special=False, limits=service.limits)
    length = Length(body.max_tokens, "max_tokens", least=body.min_tokens)
    if body.max_completion_tokens is not None:
        length = Length(body.max_completion_tokens, "max_completion_tokens", least=body.min_tokens)
    if length.most == 0:
        raise RequestError(400, "invalid_value", f"{length.name}: a chat needs at least 1", length.name)
    logprobs = Logprobs(output=bool(body.logprobs), top=body.top_logprobs or 0)
    grammar = (tools.grammar if tools else None) or grammar_of_format(body.response_format)
    await service.grammars.check(grammar, "tools" if tools and tools.grammar else "response_format")
    sampling = choose_sampling(body, length, logprobs, len(ids), service.limits, grammar)
    return Work(
        request_id=request_id_of(request, body.rid),
        prompts=[Prompt(ids, sampling, choose_stops(body.stop))],
        choices=choices,
        stream=bool(body.stream),
        rooms=rooms_of(body, 1, choices, service.config),
        received_at=received_at,
    )


class ChatDialect:
    """Writes OpenAI chat completions and chunks."""

    def __init__(self, service: Service, work: Work, wants_usage: bool, tools: ToolUse | None) -> None:
        self._tokenizer = service.tokenizer
        self._work = work
        self._wants_usage = wants_usage
        self._tally = Tally(work)
        self._readers = [CallReader(tools, f"{work.request_id}-{index}") for index in range(work.choices)]
        self._id = f"chatcmpl-{work.request_id}"
        self._created = int(work.received_at)
        self._model = service.config.served_name

    def opening(self) -> Iterable[object]:
        for index in range(self._work.choices):
            yield self._chunk(ChunkChoice(index=index, delta=MessageDelta(role="assistant", content="")))

    def events(self, piece: Piece) -> Iterable[object]:
        self._tally.add(piece)
        if piece.text or piece.finish or piece.logprobs:
            logprobs = _logprobs([piece], self._tokenizer)
            reader = self._readers[piece.index]
            content, calls = reader.push(piece.text, piece.finish is not None)
            delta = MessageDelta(content=content or None, tool_calls=calls or None)
            if content or calls or piece.finish or piece.logprobs:
                finish = _finish_reason(piece, reader)
                yield self._chunk(ChunkChoice(index=piece.index, delta=delta, logprobs=logprobs, finish_reason=finish))

    def closing(self) -> Iterable[object]:
        if self._wants_usage:
            yield self._chunk(None, self._tally.usage())

    def whole(self, pieces: list[Piece]) -> object:
        for piece in pieces:
            self._tally.add(piece)
        choices = [self._choice(index, of_choice) for index, of_choice in enumerate(self._work.by_sequence(pieces))]
        return ChatAnswer(
            id=self._id, created=self._created, model=self._model, choices=choices, usage=self._tally.usage()
        )

    def _choice(self, index: int, pieces: list[Piece]) -> Choice:
        reader = self._readers[index]
        content, _ = reader.push("".join(piece.text for piece in pieces), is_last=True)
        calls = reader.calls
        message = Message(content=content or (None if calls else ""), tool_calls=calls or msgspec.UNSET)
        return Choice(
            index=index,
            message=message,
            logprobs=_logprobs(pieces, self._tokenizer),
            finish_reason=_finish_reason(pieces[-1], reader),
            matched_stop=pieces[-1].matched,
        )

    def _chunk(self, choice: ChunkChoice | None, usage: Usage | None = None) -> ChatChunk:
        choices = [] if choice is None else [choice]
        told = usage if self._wants_usage else msgspec.UNSET
        return ChatChunk(id=self._id, created=self._created, model=self._model, choices=choices, usage=told)


def _finish_reason(piece: Piece, reader: CallReader) -> str | None:
    """Return why the choice ended: a model that has called tools waits for their results."""
    return "tool_calls" if piece.finish is FinishReason.STOP and reader.calls else piece.finish


def _logprobs(pieces: list[Piece], tokenizer: Tokenizer) -> ChoiceLogprobs | None:
    records = [record for piece in pieces for record in (piece.logprobs or ())[: piece.text_tokens]]
    if not records and all(piece.logprobs is None for piece in pieces):
        return None
    return ChoiceLogprobs([_token_record(record, tokenizer) for record in records])


def _token_record(record: TokenLogprob, tokenizer: Tokenizer) -> TokenRecord:
    top = [_top_token(token_id, logprob, tokenizer) for token_id, logprob in record.top]
    token = _top_token(record.token_id, record.logprob, tokenizer)
    return TokenRecord(token.token, token.logprob, token.bytes, top)


def _top_token(token_id: int, logprob: float, tokenizer: Tokenizer) -> TopToken:
    return TopToken(tokenizer.token_text(token_id), logprob, list(tokenizer.utf8(token_id)))
