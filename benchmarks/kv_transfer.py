"""READ of a 512-token SmolLM2 prompt (11.8 MB), as the engine does it, against NIXL alone.

    python -m benchmarks.kv_transfer [--rounds 30]

Prefill runs in a process of its own. Per round, alternating: (a) the engine's transfer in two chunks, post
to DONE summed over the chunks, checksums off; (b) raw NIXL with the same runs; (c) raw NIXL, one contiguous
transfer of the same bytes. Prints medians and ratios, then the cost of the checksums a side. Set
UCX_TLS=tcp for TCP.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from multiprocessing.connection import Connection

import numpy as np

import tests.engine.transfer.transfer_sides as sides
from benchmarks.command import run
from engine.kvcache.pool import KVLayout
from engine.transfer.data.checksums import page_checksums
from engine.transfer.data.nixl_backend import Agent, ReadState
from engine.transfer.data.runs import Descriptors, Place, descriptors, merge
from engine.transfer.interface import Committed, Landed, Paired, WantPages
from engine.transfer.protocol.head_runs import head_runs

LAYOUT = KVLayout(layers=30, kv_heads=3, pages=256, page_size=16, head_dim=64, dtype="bfloat16", item_bytes=2)
PAGES = 32
CHUNK = 16
PROMPT = list(range(PAGES * LAYOUT.page_size))


def serve(pipe: Connection) -> None:
    """The prefill process: answers one room per message."""
    sides.LAYOUT = LAYOUT
    prefill = sides.Prefill(checksums=False)
    registry = sides.Registry()
    registry.publish(prefill)
    control = prefill.transfer._control
    sides.eventually(lambda: control.sources.is_readable)
    (pool,) = control.ranks
    pipe.send((registry.address, pool.geometry.address, pool.nixl_metadata))
    while (room := pipe.recv()) is not None:
        rid = f"r{room}"
        prefill.announce(rid, room, PROMPT)
        prefill.await_event(Paired, rid)
        for first in range(0, PAGES, CHUNK):
            token = sides.TOKEN if first + CHUNK >= PAGES else None
            prefill.transfer.ready(rid, first, list(range(first, first + CHUNK)), token)
        prefill.await_event(Committed, rid)
    prefill.stop()
    registry.stop()


def engine_read(decode: sides.Decode, pipe: Connection, room: int) -> float:
    """Return the seconds that the engine needed from post to DONE, summed over the chunks."""
    rid = f"r{room}"
    pipe.send(room)
    decode.open(rid, room, PROMPT)
    decode.await_event(WantPages, rid)
    decode.transfer.grant(rid, list(range(100, 100 + PAGES)))
    decode.await_event(Landed, rid)
    took_s: float = decode.records[rid].transfer_s
    return took_s


def raw_read(agent: Agent, peer: str, parts: list[tuple[Descriptors, Descriptors]]) -> float:
    """Return the seconds from post to DONE of bare READs, one after the other."""
    total = 0.0
    for here, there in parts:
        started = time.monotonic()
        read = agent.read(peer, here, there)
        while agent.poll(read) is ReadState.RUNNING:
            pass
        total += time.monotonic() - started
        assert read.state is ReadState.DONE, read.error
        agent.release(read)
    return total


def main() -> None:
    """Print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    sides.LAYOUT = LAYOUT
    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    address, source_address, metadata = pipe.recv()
    decode = sides.Decode(address, checksums=False)
    raw = Agent("raw", decode.pool)
    peer = raw.add_peer(metadata)
    here, there = Place(decode.pool.address, LAYOUT), Place(source_address, LAYOUT)
    (heads,) = head_runs([range(LAYOUT.kv_heads)], [range(LAYOUT.kv_heads)])
    runs = [
        descriptors(there, here, merge(range(first, first + CHUNK), range(100 + first, 100 + first + CHUNK)), heads)
        for first in range(0, PAGES, CHUNK)
    ]
    size = PAGES * LAYOUT.page_bytes
    whole = [
        (
            np.array([[decode.pool.address, size, 0]], dtype=np.uint64),
            np.array([[source_address, size, 0]], dtype=np.uint64),
        )
    ]
    ours, same, contiguous = [], [], []
    for room in range(1, rounds + 1):
        ours.append(engine_read(decode, pipe, room))
        same.append(raw_read(raw, peer, runs))
        contiguous.append(raw_read(raw, peer, whole))
    sums = []
    for _ in range(rounds):
        started = time.monotonic()
        page_checksums(decode.pool, range(100, 100 + PAGES))
        sums.append(time.monotonic() - started)
    report(size, ours[1:], same[1:], contiguous[1:], sums)
    raw.drop([])
    decode.stop()
    pipe.send(None)
    process.join(10)


def report(size: int, ours: list[float], same: list[float], contiguous: list[float], sums: list[float]) -> None:
    median, best = statistics.median, min
    print(f"{size / 1e6:.1f} MB, UCX_TLS={os.environ.get('UCX_TLS', 'default')}; ms, median / best")
    for name, values in (("engine", ours), ("raw, same runs", same), ("raw, contiguous", contiguous)):
        print(f"  {name:16} {median(values) * 1e3:7.2f} / {best(values) * 1e3:.2f}")
    for name, values in (("same runs", same), ("contiguous", contiguous)):
        of_medians, of_best = median(values) / median(ours), best(values) / best(ours)
        print(f"  engine speed vs {name:11} {of_medians:.2f} (medians)  {of_best:.2f} (best)")
    print(f"  checksums a side {median(sums) * 1e3:7.2f} / {best(sums) * 1e3:.2f}")


if __name__ == "__main__":
    run(main)
