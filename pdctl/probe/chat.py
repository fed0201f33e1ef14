"""A probe of other families: a chat question with a known answer, and the stages that a client can see."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pdctl.deployment.model import Role
from pdctl.dialects.family import Pairing
from pdctl.probe.exchange import Exchange, Exchanged, JsonBody, failure_words
from pdctl.probe.prompt import KNOWN_ANSWER, chat_question, fresh_id, fresh_nonce
from pdctl.probe.report import Output, ProbeResult, Stage, StageTime, Verdict
from pdctl.probe.rooms import timeline
from pdctl.probe.run import Run
from pdctl.probe.targets import Target

PATH = "/v1/chat/completions"
OUTPUT_TOKENS = 64
UNSEEN = (
    Stage.ROUTER_ACCEPTED,
    Stage.PREFILL_QUEUED,
    Stage.PAIRED,
    Stage.PREFILL_COMPUTED,
    Stage.KV_LANDED,
)


class StreamText(msgspec.Struct, frozen=True):
    """What a stream of chat chunks said."""

    text: str
    problem: str | None
    """Why it is not a whole answer."""


def probe_chat(target: Target, locks: Sequence[int], run: Run, model: str) -> ProbeResult:
    """Send one question and say what became of it."""
    request_id = fresh_id()
    run.progress(f"{target.via}: sending {request_id}")
    body: JsonBody = {
        "model": _served_name(target) or model,
        "messages": [{"role": "user", "content": chat_question(fresh_nonce(), run.prompt_tokens)}],
        "temperature": 0,
        "max_tokens": OUTPUT_TOKENS,
        "stream": True,
    }
    with Exchange(target, locks, request_id, run.on_left(target)) as exchange:
        send = exchange.handover if target.pairing is Pairing.HANDOVER else exchange.at_once
        got = send(PATH, body, run.timeout_s)
    read = stream_text(got.answer.body) if got.answer and got.answer.ok else StreamText("", "no answer")
    verdict, output, why = _verdict(got, read, run.timeout_s)
    stages = _stages(got, is_whole=read.problem is None)
    return ProbeResult(
        id=request_id,
        via=target.via,
        pair=(target.pair[0].name, target.pair[1].name) if target.pair else None,
        at=got.sent_at,
        verdict=verdict,
        why=why,
        stage=stages[-1].stage if stages else Stage.SENT if got.is_sent else None,
        status=got.status,
        took_ms=got.took_ms(run.timeout_s),
        timeout_ms=run.timeout_s * 1000,
        error=got.error,
        output=output,
        stages=stages,
        unseen=UNSEEN if target.entry.role is Role.ROUTER else UNSEEN[1:],
        ttft_ms=next((item.at_ms for item in stages if item.stage is Stage.FIRST_BYTE), None),
        text=read.text or None,
        held_by=exchange.held_by,
    )


def stream_text(body: bytes) -> StreamText:
    """Return the text of a stream of chat chunks.

    An error event counts although the router sends `[DONE]` after it, and an end without `[DONE]` is a broken
    stream although its status was 200.
    """
    words: list[str] = []
    is_done = False
    for line in body.decode("utf-8", "replace").splitlines():
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if data == "[DONE]":
            is_done = True
        elif data:
            chunk = _decoded(data)
            if chunk.error is not None:
                return StreamText("".join(words), f"the stream ended in an error: {chunk.error}"[:300])
            words += [piece for choice in chunk.choices for piece in choice.delta.pieces()]
    return StreamText("".join(words), None if is_done else "the stream broke off before its end")


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None

    def pieces(self) -> tuple[str, ...]:
        return tuple(piece for piece in (self.reasoning_content, self.content) if piece)


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta = _Delta()


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []
    error: object = None


def _decoded(data: str) -> _Chunk:
    try:
        return msgspec.json.decode(data, type=_Chunk)
    except msgspec.DecodeError as error:
        return _Chunk(error=f"not a chat chunk ({error})")


def _verdict(got: Exchanged, read: StreamText, timeout_s: float) -> tuple[Verdict, Output, str]:
    if got.failed is not None:
        return Verdict.NOT_PROVEN, Output.UNCHECKED, failure_words(got, timeout_s)
    if got.answer is None:
        return (
            Verdict.NOT_PROVEN,
            Output.UNCHECKED,
            "prefill answered without kv_transfer_params: no KV was kept",
        )
    if read.problem is not None:
        return Verdict.NOT_PROVEN, Output.UNCHECKED, read.problem
    if KNOWN_ANSWER.lower() not in read.text.lower():
        said = " ".join(read.text.split())[:80]
        return Verdict.NOT_PROVEN, Output.GARBLED, f"the answer should name {KNOWN_ANSWER}, and is: {said!r}"
    return Verdict.PROVEN, Output.CLOSE, f"the answer names {KNOWN_ANSWER}"


def _stages(got: Exchanged, *, is_whole: bool) -> tuple[StageTime, ...]:
    answer = got.answer
    if answer is None:
        return ()
    stamps = []
    if answer.first_at is not None:
        stamps.append((Stage.FIRST_BYTE, answer.first_at))
    if answer.end_at is not None and is_whole:
        stamps.append((Stage.LAST_BYTE, answer.end_at))
    return timeline(stamps, got.sent_at)


def _served_name(target: Target) -> str | None:
    return target.entry.model
