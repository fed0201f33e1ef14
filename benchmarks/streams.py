"""A thousand streams at once: is `pdctl load` the bottleneck, or what it asks?

    python -m benchmarks.streams [--streams 1000] [--rate 5] [--seconds 20]

A server in a process of its own sends each stream so many tokens a second, in the chunks that engines send. The load
runs in this process, on one core. Told: tokens that were read against those that were due, and the processor time of a
token, from which follows what one core carries: processor time, since a busy machine does not blur it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import time
from multiprocessing.connection import Connection

from benchmarks.command import run
from benchmarks.load import describe_machine
from pdctl.load.canaries import KnownAnswers
from pdctl.load.generator import Generator
from pdctl.load.profile import Profile, Range
from pdctl.load.tally import Figures
from pdctl.load.wire import Endpoint

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = json.dumps(
    {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
     "choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": None}]},
    separators=(",", ":"),
)  # fmt: skip
OPEN_FILES = 8192


def chunk(text: str) -> bytes:
    """Return one event as an HTTP chunk."""
    body = f"data: {text}\n\n".encode()
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


def serve(told: Connection, rate: float, tokens: int) -> None:
    """Answer every POST with that many tokens at that rate; tell the port first."""
    raise_limit()
    piece, end = chunk(TOKEN), chunk("[DONE]") + b"0\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        due = time.monotonic()
        for _ in range(tokens):
            due += 1 / rate
            await asyncio.sleep(due - time.monotonic())
            writer.write(piece)
        writer.write(end)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def raise_limit() -> None:
    """Allow as many sockets as there are streams."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(OPEN_FILES, most), most))


async def loaded(port: int, streams: int, seconds: float) -> tuple[Figures, float, float]:
    """Return the figures of a load, the processor seconds that it took, and how long it ran."""
    profile = Profile(
        sessions=streams,
        turns=Range(1, 1),
        prompt_tokens=Range(16, 32),
        output_tokens=Range(16, 32),
        tool_rate=0,
        canary_rate=0,
    )
    generator = Generator(Endpoint(url=f"http://127.0.0.1:{port}", model="m"), profile, KnownAnswers())
    busy, began = time.process_time(), time.monotonic()
    await generator.run(seconds)
    return generator.figures(), time.process_time() - busy, time.monotonic() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=5.0, help="tokens a second of each stream")
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    describe_machine()
    raise_limit()
    cores = sorted(os.sched_getaffinity(0))
    ours, theirs = multiprocessing.Pipe()
    tokens = round(options.rate * 4)
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(theirs, options.rate, tokens), daemon=True
    )
    server.start()
    port = ours.recv()
    os.sched_setaffinity(0, cores[:1])
    figures, busy_s, took_s = asyncio.run(loaded(port, options.streams, options.seconds))
    server.terminate()
    due = tokens * figures.outcomes.get("ok", 0)
    offered = options.streams * options.rate
    carried = figures.tokens / busy_s
    ended = ", ".join(f"{count} {name}" for name, count in figures.outcomes.items())
    print(f"{options.streams} streams x {options.rate:g} tokens/s, {took_s:.1f} s: {ended}")
    print(f"tokens read {figures.tokens} of {due} due: ratio {figures.tokens / max(1, due):.3f}  target 1")
    print(f"processor: {1e6 * busy_s / max(1, figures.tokens):.0f} us a token, connections included")
    print(f"one core carries {carried:.0f} tokens/s, {carried / offered:.1f} x what these streams offer  target >= 1")


if __name__ == "__main__":
    run(main)
