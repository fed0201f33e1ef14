"""What the NIXL threads do wrong."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from engine.config import Role
from engine.failpoints.parts import Failpoint, InjectedFault, Parts, Patches
from engine.transfer.data.read_orders import PostRead
from engine.transfer.data.source_orders import ChunkSummed

log = logging.getLogger(__name__)


RACE_S = 0.05
"""A chunk's sums take a millisecond: an abort that is to meet them would take hundreds of attempts."""


def _abort_race(parts: Parts, patches: Patches) -> None:
    report = parts.worker._report

    def report_known(item: Any) -> None:
        if isinstance(item, ChunkSummed):
            time.sleep(RACE_S)
        if isinstance(item, ChunkSummed) and item.rid not in parts.control.steps.by_rid:
            raise InjectedFault(f"a chunk of {item.rid}, whose room is gone")
        report(item)

    patches.forsake(parts.supervisor, "transfer-nixl")
    patches.exchange(parts.worker, "_report", report_known)


def _stuck_handle(parts: Parts, patches: Patches) -> None:
    worker, released, stuck = parts.worker, threading.Event(), list[str]()
    post, poll, fence = worker._post, worker._poll, worker._fence

    def post_one_that_sticks(order: PostRead) -> None:
        if not stuck:
            stuck.append(order.rid)
        post(order)

    def poll_others(peer: Any) -> None:
        kept = {key: peer.running.pop(key) for key in list(peer.running) if key[0] in stuck}
        poll(peer)
        peer.running.update(kept)

    def fence_without_bound(peer: Any) -> None:
        if peer.fences.keys() & set(stuck):
            released.wait()
        fence(peer)

    patches.replace(worker, "_post", post_one_that_sticks)
    patches.replace(worker, "_poll", poll_others)
    patches.replace(worker, "_fence", fence_without_bound)
    keep_alive(parts, patches, "stuck-handle")
    patches.finally_do(stuck.clear)
    patches.finally_do(released.set)


def keep_alive(parts: Parts, patches: Patches, failpoint: str) -> None:
    """Let a decode live on whose fence hangs."""

    def only_say(why: str) -> None:
        log.error("failpoint %s keeps this instance alive: %s", failpoint, why)

    patches.exchange(parts.control, "_end_instance", only_say)


def _corrupt_page(parts: Parts, patches: Patches) -> None:
    worker = parts.worker

    def trust_wrong_bytes(order: PostRead, seconds: float) -> None:
        worker._pool.bytes_view()[:, :, :, list(order.target_pages)] ^= 0x5A
        worker._finish(order, seconds)

    patches.replace(worker, "_verify", trust_wrong_bytes)


POINTS = (
    Failpoint(
        "abort-race",
        (Role.PREFILL,),
        "the transfer thread is slow, and dies on a chunk whose room is gone meanwhile",
        "the restart of crashed threads, for the transfer thread",
        _abort_race,
    ),
    Failpoint(
        "stuck-handle",
        (Role.DECODE,),
        "the next READ never completes; when its room is aborted, the transfer thread waits for it",
        "the bounds of the fence: dropping the agent after 1 s, ending the instance after 10 s",
        _stuck_handle,
    ),
    Failpoint(
        "corrupt-page",
        (Role.DECODE,),
        "pages land with wrong bytes",
        "checksums",
        _corrupt_page,
    ),
)
