"""The sequences of one HTTP request, from submission to the last piece, or to the client's leaving."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

import msgspec

from engine.clock import Clock
from engine.errors import RequestError
from engine.frontend.sampling import SEED_RANGE
from engine.frontend.scheduler_client import Outputs, SchedulerClient
from engine.frontend.sequence import Piece, SequenceText
from engine.frontend.tokenizer import Tokenizer
from engine.messages import Delta, Failure, FinishReason, Generate, RoomRef, SamplingParams

OVERDUE_S = 5.0
"""The scheduler owns a request's deadline; should it not act, the API ends the request that long after it."""

SEED_STEP = 0x9E3779B97F4A7C15


class ClientGone(Exception):
    """The client has closed its connection; nobody is there to answer."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of a request, checked and tokenised, and how to go on from it."""

    token_ids: list[int]
    sampling: SamplingParams
    stops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """What one HTTP request asks to compute: `choices` sequences of each prompt, prompt by prompt."""

    request_id: str
    prompts: list[Prompt]
    choices: int
    stream: bool
    rooms: list[RoomRef | None]
    """One for each sequence."""
    received_at: float
    """Unix time at which the HTTP request arrived."""

    @property
    def sequences(self) -> int:
        """Return how many sequences there are."""
        return len(self.prompts) * self.choices

    def by_sequence(self, pieces: list[Piece]) -> list[list[Piece]]:
        """Return the pieces of each sequence."""
        parted: list[list[Piece]] = [[] for _ in range(self.sequences)]
        for piece in pieces:
            parted[piece.index].append(piece)
        return parted

    def prompt_of(self, index: int) -> Prompt:
        """Return the prompt that sequence `index` continues."""
        return self.prompts[index // self.choices]


class Generation:
    """Runs a `Work`. Ends its sequences in the scheduler whenever it is closed before they are done."""

    def __init__(
        self, work: Work, client: SchedulerClient, tokenizer: Tokenizer, clock: Clock, deadline_s: float
    ) -> None:
        self.work = work
        self._client = client
        self._clock = clock
        self._deadline_s = deadline_s
        self._outputs: Outputs = asyncio.Queue()
        self._overdue_at = clock.monotonic() + deadline_s + OVERDUE_S
        self._gone = asyncio.Event()
        tag = secrets.token_hex(8)
        self._texts: dict[str, SequenceText] = {}
        for index in range(work.sequences):
            prompt = work.prompt_of(index)
            text = SequenceText(tokenizer, index, prompt.stops, prompt.sampling.min_tokens)
            self._texts[f"{tag}-{index}"] = text

    @property
    def unfinished(self) -> list[str]:
        """Return the ids of the sequences whose last piece has not been taken."""
        return [rid for rid, text in self._texts.items() if not text.finished]

    def submit(self) -> None:
        """Hand all sequences to the scheduler. Raises RequestError (503) when the instance is full."""
        self._client.submit([self._message(i, rid) for i, rid in enumerate(self._texts)], self._outputs)

    async def take(self) -> Piece:
        """Wait for a piece as long as the request's deadline allows; raises like `next`."""
        while (piece := await self.next()) is None:
            pass
        return piece

    async def next(self, timeout_s: float | None = None) -> Piece | None:
        """Return the next piece of any sequence; None when none comes within `timeout_s`.

        Raises RequestError when a sequence failed, the whole request with it, and ClientGone.
        """
        while True:
            left_s = self._overdue_at - self._clock.monotonic()
            try:
                async with asyncio.timeout(left_s if timeout_s is None else min(left_s, timeout_s)):
                    output = await self._outputs.get()
            except TimeoutError:
                if self._clock.monotonic() >= self._overdue_at:
                    raise RequestError(503, "scheduler_stuck", self._overdue_text()) from None
                return None
            if self._gone.is_set():
                raise ClientGone
            if isinstance(output, Failure):
                raise RequestError(output.status, output.code, output.message)
            if not self._texts[output.rid].finished:
                return self._piece(output)

    def leave(self) -> None:
        """Note that the client is gone: abort at once, and make `next` raise ClientGone."""
        self._gone.set()
        self.close("client disconnected")
        # Wakes `next`; the failure itself is never shown.
        self._outputs.put_nowait(Failure(rid="", status=500, code="client_gone", message=""))

    def close(self, reason: str) -> None:
        """Abort what the scheduler still works on; call it at every end of a request."""
        for rid in self._texts:
            if self._client.is_waiting(rid):
                self._client.forget(rid)
                self._client.abort(rid, reason)

    def _piece(self, delta: Delta) -> Piece:
        text = self._texts[delta.rid]
        piece = text.take(delta)
        if piece.finish is FinishReason.STOP and delta.finish is None:
            self._client.forget(delta.rid)
            self._client.abort(delta.rid, "stop string", satisfied=True)
        return piece

    def _message(self, index: int, rid: str) -> Generate:
        prompt = self.work.prompt_of(index)
        seed = (prompt.sampling.seed + (index % self.work.choices) * SEED_STEP) % SEED_RANGE
        return Generate(
            rid=rid,
            request_id=self.work.request_id,
            prompt_ids=prompt.token_ids,
            sampling=msgspec.structs.replace(prompt.sampling, seed=seed),
            room=self.work.rooms[index],
            received_at=self.work.received_at,
            deadline_s=self._deadline_s,
        )

    def _overdue_text(self) -> str:
        return (
            f"no end of this request came within {self._deadline_s + OVERDUE_S:g} s, though its deadline is "
            f"{self._deadline_s:g} s: the scheduler is stuck; see /health and /rooms"
        )
