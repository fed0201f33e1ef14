"""Runs a profile against an endpoint: sessions at once, until the time is over or they are stopped."""

from __future__ import annotations

import asyncio
import contextlib
import time
from itertools import count

from pdctl.load.canaries import Canaries
from pdctl.load.conversation import Conversation
from pdctl.load.profile import Profile
from pdctl.load.reply import Outcome, Reply
from pdctl.load.tally import Figures, Tally
from pdctl.load.wire import Endpoint, Post, open_post

PATH = "/v1/chat/completions"
CONNECT_S = 10.0
GRACE_S = 10.0
AFTER_FAILURE_S = 1.0
"""A client behind a router does not ask again at once; and a server that refuses everything must not be hammered."""


class Generator:
    """Owner of all connections of one load. Lives in one event loop; `figures`, `drop_all`, `stop` belong there too."""

    def __init__(self, endpoint: Endpoint, profile: Profile, canaries: Canaries) -> None:
        self._tally = Tally()
        self._endpoint = endpoint
        self._profile = profile
        self._canaries = canaries
        self._open: set[Post] = set()
        self._numbers = count()
        self._over = asyncio.Event()
        self._is_ending = False

    async def run(self, duration_s: float | None) -> None:
        """Keep the sessions going for that long, or until `stop`; leaves no connection open.

        At the end requests have `GRACE_S` to finish; what is open then counts as unfinished.
        """
        workers = [asyncio.create_task(self._worker(index)) for index in range(self._profile.sessions)]
        if self._profile.kill_after_s is not None:
            workers.append(asyncio.create_task(self._kill_after(self._profile.kill_after_s)))
        try:
            await self._pause(duration_s)
            self._is_ending = True
            if not self._over.is_set():
                await asyncio.wait(workers, timeout=GRACE_S)
        finally:
            self.stop()
            await asyncio.gather(*workers)

    def stop(self) -> None:
        """End now; what is in flight counts as unfinished."""
        self._over.set()
        self.drop_all(Outcome.UNFINISHED)

    def drop_all(self, why: Outcome = Outcome.KILLED) -> int:
        """Close every connection at once, as the death of an agent does; return how many there were."""
        dropped = list(self._open)
        for post in dropped:
            post.leave(why)
        return len(dropped)

    def figures(self) -> Figures:
        """Return what became of it so far."""
        return self._tally.figures(in_flight=len(self._open))

    async def _kill_after(self, seconds: float) -> None:
        await self._pause(seconds)
        self.drop_all()

    async def _worker(self, index: int) -> None:
        """Play one session after the other."""
        await self._pause(self._profile.ramp_s * index / self._profile.sessions)
        while not self._is_over:
            await self._session(Conversation(self._profile, next(self._numbers)))

    async def _session(self, conversation: Conversation) -> None:
        for _ in range(conversation.turns):
            if conversation.is_canary():
                await self._canary(conversation)
            turn = conversation.next_turn()
            reply, _ = await self._ask(PATH, turn.body(self._endpoint.model), conversation.leaves_after_s())
            if self._is_over:
                return
            if reply.outcome is not Outcome.OK:
                # An agent that was cut off begins anew; it does not go on from half an answer.
                await self._pause(AFTER_FAILURE_S)
                return
            conversation.hear(reply)
            await self._pause(conversation.pause_s())

    async def _canary(self, conversation: Conversation) -> None:
        canary = self._canaries.draw(conversation.chance)
        reply, post = await self._ask(canary.path, canary.body(self._endpoint.model), None)
        if reply.outcome is Outcome.OK and post is not None:
            self._tally.add_canary(await canary.judged(reply, post))

    async def _ask(self, path: str, body: object, leaves_after_s: float | None) -> tuple[Reply, Post | None]:
        """Send one request, count its end and return it, whatever it is."""
        began, post = time.monotonic(), None
        try:
            post = await asyncio.wait_for(open_post(self._endpoint, path, body), CONNECT_S)
            reply = await self._ended(post, leaves_after_s)
        except (OSError, TimeoutError) as error:
            problem = str(error) or f"no connection within {CONNECT_S:g} s"
            reply = Reply(outcome=Outcome.UNREACHABLE, took_s=time.monotonic() - began, problem=problem)
        self._tally.add(reply)
        return reply, post

    async def _ended(self, post: Post, leaves_after_s: float | None) -> Reply:
        """Wait for the end, or make one: by the client's will or by its patience."""
        patience_s = self._profile.timeout_s
        waits_s = patience_s if leaves_after_s is None else min(leaves_after_s, patience_s)
        self._open.add(post)
        if self._over.is_set():
            post.leave(Outcome.UNFINISHED)
        try:
            return await asyncio.wait_for(asyncio.shield(post.ended), waits_s)
        except TimeoutError:
            post.leave(Outcome.LEFT if waits_s < patience_s else Outcome.TIMEOUT)
            return await post.ended
        finally:
            self._open.discard(post)

    async def _pause(self, seconds: float | None) -> None:
        """Wait, unless or until it is over. None waits for that."""
        if seconds is None or seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), seconds)

    @property
    def _is_over(self) -> bool:
        return self._is_ending or self._over.is_set()
