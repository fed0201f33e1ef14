"""Send a request to its legs, wait, and stop what has not ended - or leave it, where that could hurt."""

from __future__ import annotations

import queue
import secrets
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import msgspec

from pdctl.collect.http import Outcome
from pdctl.deployment.model import Instance
from pdctl.dialects.answers import json_value
from pdctl.probe.leg import Leg, LegEnd, request_to
from pdctl.probe.targets import Target

SETTLE_S = 2.0
"""How long the other leg may take to end by itself after one has failed: our engine tells it within this."""

JsonBody = dict[str, object]
OnLeft = Callable[[tuple[int, ...]], None]
"""Told the processes that keep connections open."""


class Exchanged(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a request."""

    answer: LegEnd | None
    """Of the leg that answers: the router, or decode. None where it was not sent."""
    legs: dict[str, LegEnd]
    """By instance name, in the order of sending."""
    sent_at: float
    """Unix time of the first leg's departure, or of the attempt."""
    is_sent: bool

    @property
    def failed(self) -> tuple[str, LegEnd] | None:
        """Return the leg that failed first, or None."""
        bad = [(name, end) for name, end in self.legs.items() if not end.ok]
        return min(bad, key=lambda item: item[1].end_at or float("inf"), default=None)

    @property
    def decisive(self) -> LegEnd | None:
        """Return the end that tells what became of it: of the leg that failed first, else the answer.

        Where the leg that answers was not sent, it is the end of the last that was. None: no leg was sent.
        """
        if self.failed is not None:
            return self.failed[1]
        return self.answer or next(reversed(self.legs.values()), None)

    @property
    def status(self) -> int | None:
        """Return the status of the decisive leg; None where it answered none."""
        return self.decisive.status if self.decisive else None

    @property
    def error(self) -> str | None:
        """Return how the decisive leg ended where no whole answer came."""
        outcome = self.decisive.outcome if self.decisive else Outcome.ANSWERED
        return None if outcome is Outcome.ANSWERED else outcome.value

    def took_ms(self, timeout_s: float) -> float:
        """Return milliseconds until the decisive leg ended, else the whole timeout."""
        ended_at = self.decisive.end_at if self.decisive else None
        return round((timeout_s if ended_at is None else ended_at - self.sent_at) * 1000, 3)


class Exchange:
    """The legs of one request.

    They live until the `with` is left: what has not ended then, after a timeout or Ctrl-C, is stopped where
    that is safe. So the engines can be asked about a request that hangs before its end changes the answer.
    """

    def __init__(self, target: Target, locks: Sequence[int], request_id: str, on_left: OnLeft) -> None:
        self._target = target
        self._locks = locks
        self._request_id = request_id
        self._on_left = on_left
        self._ended: queue.Queue[Leg] = queue.Queue()
        self._legs: list[Leg] = []
        self.held_by: tuple[int, ...] = ()
        """After the `with`: processes that keep a connection open, because closing it could do harm."""
        self._started_at = time.time()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        still_open = [leg for leg in self._legs if not leg.is_over]
        if self._target.abort_safe:
            for leg in still_open:
                leg.stop()
        elif still_open:
            self.held_by = tuple(pid for leg in still_open if (pid := leg.pid) is not None)
            self._on_left(self.held_by)

    def at_once(self, path: str, body: JsonBody, timeout_s: float) -> Exchanged:
        """Post `body` to the entry, or with a room to both legs of the pair; wait at most `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        if self._target.pair is not None:
            body = body | _room(self._target.pair[0])
        for instance in self._target.pair or (self._target.entry,):
            self._send(instance, path, body)
        self._wait(deadline)
        return self._outcome()

    def handover(self, path: str, body: JsonBody, timeout_s: float) -> Exchanged:
        """Post to prefill, then to decode with the kv_transfer_params that prefill answered (vLLM).

        What prefill parks is read at once and once only: a second read could find freed blocks.
        """
        assert self._target.pair is not None
        prefill, decode = self._target.pair
        deadline = time.monotonic() + timeout_s
        ask = {"do_remote_decode": True, "do_remote_prefill": False}
        first = self._send(prefill, path, body | {"max_tokens": 1, "stream": False, "kv_transfer_params": ask})
        self._wait(deadline)
        params = json_value(first.result().body, ("kv_transfer_params",))
        if first.result().ok and isinstance(params, dict):
            self._send(decode, path, body | {"kv_transfer_params": params})
            self._wait(deadline)
        return self._outcome()

    def _send(self, instance: Instance, path: str, body: JsonBody) -> Leg:
        request = request_to(instance, path, body, self._request_id)
        leg = Leg(instance.name, request, self._locks, self._ended)
        self._legs.append(leg)
        return leg

    def _wait(self, deadline: float) -> None:
        """Return when every leg has ended, at the deadline, or `SETTLE_S` after one has failed."""
        while not all(leg.is_over for leg in self._legs):
            try:
                leg = self._ended.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return
            if not leg.result().ok:
                deadline = min(deadline, time.monotonic() + SETTLE_S)

    def _outcome(self) -> Exchanged:
        legs = {leg.name: leg.result() for leg in self._legs}
        sent = [end.sent_at for end in legs.values() if end.sent_at is not None]
        return Exchanged(
            answer=legs.get(self._target.entry.name),
            legs=legs,
            sent_at=min(sent, default=self._started_at),
            is_sent=bool(sent),
        )


def _room(prefill: Instance) -> JsonBody:
    """Return where the two legs meet; the room is random over 63 bits, as routers draw it."""
    return {
        "bootstrap_host": urlsplit(prefill.url).hostname,
        "bootstrap_port": prefill.bootstrap_port,
        "bootstrap_room": secrets.randbits(63),
    }


def failure_words(got: Exchanged, timeout_s: float) -> str:
    """Return why a request failed, in one line: who was silent, or what the first leg that failed said."""
    silent = [name for name, end in got.legs.items() if end.end_at is None]
    failed = got.failed
    if failed is None or failed[1].end_at is None:
        return f"no answer within {timeout_s:g} s from {' and '.join(silent)}"
    return describe_failure(*failed)


def describe_failure(name: str, end: LegEnd) -> str:
    """Return what a failed leg answered, in one line that fits a report."""
    if end.outcome is not Outcome.ANSWERED:
        return f"{name}: {end.outcome}" + (f" ({end.error})" if end.error else "")
    message = json_value(end.body, ("error", "message")) or json_value(end.body, ("message",))
    words = message if isinstance(message, str) else end.body.decode("utf-8", "replace")
    shown = " ".join(words.split())
    return f"{name}: HTTP {end.status}: {shown[:300]}"
