"""Collect from 256 simulated instances: a real HTTP server, real-size metrics, slow and hung ones among them.

    python -m benchmarks.fleet [--instances 256] [--interval 5]

Each instance listens on a port of its own and answers what an SGLang engine answers, with 250 kB of metrics; of ten,
one takes 2 s for each answer, of fifty, one accepts and never answers. Target (DESIGN section 8): interval + 5 s on two
cores, server included, and at most 250 MB in the collecting process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.command import run
from benchmarks.load import describe_machine
from pdctl.collect.session import collect
from pdctl.deployment.model import Deployment, Instance, Role

METRICS_BYTES = 250_000
SLOW_S = 2.0
PER_HOST = 8
LIMIT_S = 5.0
LIMIT_MB = 250.0


def metrics_text() -> bytes:
    """Return an exposition of real proportions: four of five lines are histogram buckets."""
    lines: list[str] = []
    size = 0
    for line in _lines():
        lines.append(line)
        size += len(line) + 1
        if size >= METRICS_BYTES:
            break
    return ("\n".join(lines) + "\n").encode()


def _lines() -> Iterator[str]:
    labels = 'engine_type="prefill",model_name="llama-3.1-70b-instruct",moe_ep_rank="0",pp_rank="0",tp_rank="{}"'
    for number in range(10_000):
        name = f"sglang:stage_{number}_seconds"
        yield f"# HELP {name} Time of stage {number}."
        yield f"# TYPE {name} histogram"
        for rank in range(8):
            inside = labels.format(rank)
            for bound in ("0.001", "0.005", "0.01", "0.05", "0.1", "0.5", "1.0", "5.0", "10.0", "60.0", "+Inf"):
                yield f'{name}_bucket{{{inside},le="{bound}"}} {number * rank}.0'
            yield f"{name}_sum{{{inside}}} {number}.5"
            yield f"{name}_count{{{inside}}} {number}.0"
            yield f"sglang:num_running_reqs{{{inside}}} {number % 7}.0"


async def serve(count: int) -> None:
    """Listen on `count` ports, print them, and answer until killed."""
    answers = {
        "/metrics": metrics_text(),
        "/v1/loads": b'{"loads":[{"dp_rank":0,"num_running_reqs":3,"num_waiting_reqs":1}]}',
        "/server_info": json.dumps({"version": "0.5.16", "disaggregation_mode": "prefill", "tp_size": 8}).encode(),
        "/health": b"",
        "/v1/models": b'{"data":[{"id":"m"}]}',
    }

    def handler(number: int):  # type: ignore[no-untyped-def]
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
                await respond(reader, writer)
            writer.close()

        async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            request = await reader.readuntil(b"\r\n\r\n")
            if number % 50 == 7:
                await asyncio.sleep(3600)
            if number % 10 == 3:
                await asyncio.sleep(SLOW_S)
            path = request.split(b" ")[1].decode().partition("?")[0]
            body = answers.get(path)
            status = b"200 OK" if body is not None else b"404 Not Found"
            head = b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body or b""))
            writer.write(head + (body or b""))
            await writer.drain()

        return answer

    servers = [await asyncio.start_server(handler(number), "127.0.0.1", 0, backlog=256) for number in range(count)]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await asyncio.Event().wait()


def measure(count: int, interval_s: float) -> tuple[float, float, dict[str, int]]:
    """Return seconds, peak memory in MB of this process, and files by status."""
    server = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.fleet", "--serve", "--instances", str(count)], stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        ports = json.loads(server.stdout.readline())
        instances = tuple(
            Instance(
                name=f"prefill-{at}",
                role=Role.PREFILL,
                dialect="sglang",
                url=f"http://127.0.0.1:{port}",
                # Eight on this host, the others elsewhere: of those only HTTP is read.
                host="local" if at < PER_HOST else f"ssh:node{at // PER_HOST}",
            )
            for at, port in enumerate(ports)
        )
        deployment = Deployment(name="fleet", model="m", instances=instances)
        with tempfile.TemporaryDirectory() as folder:
            summary = collect(deployment, interval_s=interval_s, timeout_s=interval_s + 30, out=Path(folder) / "i")
    finally:
        server.kill()
        server.wait()
    return summary.took_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, summary.files


def main() -> int:
    """Print the figures; 1 when one misses its target."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--instances", type=int, default=256)
    parser.add_argument("--interval", type=float, default=5.0)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.instances))
    describe_machine()
    took_s, peak_mb, files = measure(given.instances, given.interval)
    print(f"{given.instances} instances, {METRICS_BYTES / 1000:g} kB of metrics each, interval {given.interval:g} s")
    print(f"took {took_s:.1f} s = interval + {took_s - given.interval:.1f} s (target: interval + {LIMIT_S:g} s)")
    print(f"peak memory {peak_mb:.0f} MB = {peak_mb / LIMIT_MB:.2f} of the target; files {files}")
    return 0 if took_s <= given.interval + LIMIT_S and peak_mb <= LIMIT_MB else 1


if __name__ == "__main__":
    run(main)
