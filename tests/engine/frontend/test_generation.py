"""Deadlines and ends of a generation, with a clock that the test moves and a client that only records."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from engine.errors import RequestError
from engine.frontend.generation import OVERDUE_S, ClientGone, Generation, Prompt, Work
from engine.frontend.scheduler_client import Outputs, SchedulerClient
from engine.frontend.tokenizer import load_tokenizer
from engine.messages import Delta, Failure, FinishReason, Generate, SamplingParams

STOP = "hell"


class HandClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


class RecordingClient:
    """In place of the sockets: keeps what was asked."""

    def __init__(self) -> None:
        self.live: list[str] = []
        self.aborted: list[tuple[str, str]] = []
        self.satisfied: list[str] = []
        self.outputs: Outputs = asyncio.Queue()

    def submit(self, sequences: list[Generate], outputs: Outputs) -> None:
        self.live, self.outputs = [sequence.rid for sequence in sequences], outputs

    def is_waiting(self, rid: str) -> bool:
        return rid in self.live

    def forget(self, rid: str) -> None:
        self.live.remove(rid)

    def abort(self, rid: str, reason: str, satisfied: bool = False) -> None:
        if satisfied:
            self.satisfied.append(rid)
        else:
            self.aborted.append((rid, reason))


class Case:
    """A generation of two choices, submitted."""

    def __init__(self, model: Path) -> None:
        self.client, self.clock = RecordingClient(), HandClock()
        prompt = Prompt([5], SamplingParams(max_tokens=4), (STOP,))
        work = Work("q", [prompt], choices=2, stream=False, rooms=[None, None], received_at=1000.0)
        tokenizer = load_tokenizer(model)
        client = cast(SchedulerClient, self.client)
        self.generation = Generation(work, client, tokenizer, self.clock, deadline_s=60.0)
        self.generation.submit()
        self.rids = list(self.client.live)

    def say(self, output: Delta | Failure) -> None:
        self.client.outputs.put_nowait(output)


def test_missed_deadline_is_ended_by_the_api(tiny_model_dir: Path) -> None:
    """Should the scheduler not keep a request's deadline, the API ends it OVERDUE_S later, with what to look at."""

    async def scenario() -> None:
        case = Case(tiny_model_dir)
        case.clock.now += 60.0 + OVERDUE_S
        with pytest.raises(RequestError, match="/rooms") as caught:
            await case.generation.take()
        assert (caught.value.status, caught.value.code) == (503, "scheduler_stuck")
        case.generation.close("answer ended early")
        assert case.client.aborted == [(rid, "answer ended early") for rid in case.rids]

    asyncio.run(scenario())


def test_silence_is_no_piece(tiny_model_dir: Path) -> None:
    """Within the deadline a bounded wait returns None."""

    async def scenario() -> None:
        assert await Case(tiny_model_dir).generation.next(0.0) is None

    asyncio.run(scenario())


def test_failure_of_one_choice_ends_the_request(tiny_model_dir: Path) -> None:
    """One failed sequence fails the request; the other one is aborted when it closes."""

    async def scenario() -> None:
        case = Case(tiny_model_dir)
        case.client.live.remove(case.rids[0])
        case.say(Failure(rid=case.rids[0], status=502, code="read_failed", message="m"))
        with pytest.raises(RequestError) as caught:
            await case.generation.take()
        assert caught.value.status == 502
        case.generation.close("answer ended early")
        assert case.client.aborted == [(case.rids[1], "answer ended early")]

    asyncio.run(scenario())


def test_leaving_wakes_the_waiter(tiny_model_dir: Path) -> None:
    """A wait for the next piece ends when the client leaves, and everything is aborted at once."""

    async def scenario() -> None:
        case = Case(tiny_model_dir)
        waiting = asyncio.create_task(case.generation.take())
        await asyncio.sleep(0)
        case.generation.leave()
        with pytest.raises(ClientGone):
            await waiting
        assert case.client.aborted == [(rid, "client disconnected") for rid in case.rids]

    asyncio.run(scenario())


def test_ended_sequences_are_not_aborted(tiny_model_dir: Path) -> None:
    """After a whole answer closing asks for nothing."""

    async def scenario() -> None:
        case = Case(tiny_model_dir)
        case.client.live.clear()
        for rid in case.rids:
            case.say(Delta(rid=rid, token_ids=[7], finish=FinishReason.LENGTH))
            assert (await case.generation.take()).finish is FinishReason.LENGTH
        assert case.generation.unfinished == []
        case.generation.close("answer ended early")
        assert case.client.aborted == []

    asyncio.run(scenario())


def test_a_stop_string_ends_its_sequence_as_satisfied(tiny_model_dir: Path) -> None:
    """Nothing failed: the scheduler is asked to end that one and no other, and once only."""

    async def scenario() -> None:
        case = Case(tiny_model_dir)
        case.say(Delta(rid=case.rids[0], token_ids=load_tokenizer(tiny_model_dir).encode(STOP, add_special=False)))
        assert (await case.generation.take()).finish is FinishReason.STOP
        assert (case.client.satisfied, case.client.aborted) == ([case.rids[0]], [])
        assert case.generation.unfinished == [case.rids[1]]
        case.client.live.clear()
        case.generation.close("answer ended early")
        assert (case.client.satisfied, case.client.aborted) == ([case.rids[0]], [])

    asyncio.run(scenario())
