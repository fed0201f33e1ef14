"""What came back on a stream of chat chunks, read without trust. Pure: bytes in, record out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    """How one request ended, as its client saw it. Each calls for another next step, so they are kept apart."""

    OK = "ok"
    LEFT = "left"
    """We closed it on purpose."""
    KILLED = "killed"
    """We dropped every connection at once."""
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    """429 or 503: too busy, or no worker."""
    HTTP_ERROR = "http error"
    STREAM_ERROR = "error event"
    """Status 200, and then an error within the stream."""
    BROKEN = "broken stream"
    """The connection ended before the answer did."""
    TIMEOUT = "timeout"
    UNFINISHED = "unfinished"
    """Open when the load ended."""


ON_PURPOSE = (Outcome.LEFT, Outcome.KILLED, Outcome.UNFINISHED)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call, put together from its pieces."""

    id: str = ""
    name: str = ""
    arguments: str = ""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One request's end. Times are seconds from its first byte out."""

    outcome: Outcome
    took_s: float
    status: int | None = None
    ttft_s: float | None = None
    """Until the first token."""
    tokens: int = 0
    """Chunks with content: one token each on most engines."""
    text: str = ""
    calls: tuple[Call, ...] = ()
    problem: str | None = None


class StreamRead(msgspec.Struct, frozen=True, kw_only=True):
    """What the events of a stream said."""

    tokens: int
    text: str
    calls: tuple[Call, ...]
    is_done: bool
    problem: str | None


LEAKS = re.compile(r"</?tool_call>|<\|python_tag\|>|\[TOOL_CALLS\]|<function=|<\|tool_calls")
"""What belongs to a model's way of writing calls and never to a user's text (Hermes, Llama 3, Mistral, Functionary)."""


def read_events(lines: Iterable[bytes]) -> StreamRead:
    """Put the `data:` lines of a chat stream together. An error event counts although `[DONE]` follows it."""
    text: list[str] = []
    calls: dict[int, Call] = {}
    tokens, is_done, problem = 0, False, None
    for line in lines:
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            is_done = True
            continue
        try:
            chunk = msgspec.json.decode(data, type=_Chunk)
        except msgspec.DecodeError as error:
            problem = problem or f"an event is no chat chunk: {error}"
            continue
        if chunk.error is not None:
            problem = problem or str(chunk.error)[:200]
        for choice in chunk.choices:
            pieces = [piece for piece in (choice.delta.reasoning_content, choice.delta.content) if piece]
            text += pieces
            _join(calls, choice.delta.tool_calls or [])
            tokens += bool(pieces or choice.delta.tool_calls)
    ordered = tuple(calls[index] for index in sorted(calls))
    return StreamRead(tokens=tokens, text="".join(text), calls=ordered, is_done=is_done, problem=problem)


def is_token(line: bytes) -> bool:
    """Return whether an event carries something of the answer, without reading it whole: the time of it counts."""
    return b'"content":"' in line or b'"content": "' in line or b'"tool_calls":[' in line or b'"tool_calls": [' in line


def markup_faults(text: str, calls: Iterable[Call]) -> tuple[str, ...]:
    """Return what is wrong with an answer's tool calls: markup in the text, arguments that are no JSON object."""
    found = [f"markup in the text: {match}" for match in dict.fromkeys(LEAKS.findall(text))]
    for call in calls:
        if not call.name:
            found.append("a tool call without a name")
        try:
            msgspec.json.decode(call.arguments or "{}", type=dict[str, object])
        except msgspec.DecodeError as error:
            found.append(f"arguments of {call.name or '?'} are no JSON object: {error}")
    return tuple(found)


class _Function(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class _CallPiece(msgspec.Struct, frozen=True):
    index: int = 0
    id: str | None = None
    function: _Function = _Function()


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_CallPiece] | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta = _Delta()


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []
    error: object = None


def _join(calls: dict[int, Call], pieces: Iterable[_CallPiece]) -> None:
    for piece in pieces:
        known = calls.get(piece.index, Call())
        calls[piece.index] = Call(
            id=piece.id or known.id,
            name=known.name + (piece.function.name or ""),
            arguments=known.arguments + (piece.function.arguments or ""),
        )
