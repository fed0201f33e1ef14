"""Real ranks: one process each, which load a checkpoint's share and compute what they are told over a pipe."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.model.checkpoint import open_checkpoint
from engine.model.loading import load_model
from engine.parallel.group import TensorParallelGroup, join_group
from tests.engine.model.paged_run import PagedRun

ANSWER_S = 120.0

# Children are forked from a process that has torch: 0.1 s instead of 3 s each.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch", "numpy"])


class RankProcesses:
    """A group of `size` processes; `call` runs a method of `Rank` on all of them at once."""

    def __init__(self, size: int, meeting: Path, timeout_s: float = 60.0) -> None:
        self._pipes: list[Connection] = []
        self.processes = []
        for rank in range(size):
            ours, theirs = _context.Pipe()
            process = _context.Process(target=_serve, args=(theirs, rank, size, meeting, timeout_s), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self.processes.append(process)

    def call(self, method: str, *arguments: object) -> list[Any]:
        """Return every rank's value; fails the test with the first error."""
        for pipe in self._pipes:
            pipe.send((method, arguments))
        return [self.answer(rank) for rank in range(len(self._pipes))]

    def ask(self, rank: int, method: str, *arguments: object) -> None:
        """Have one rank alone do something; `answer` has its value."""
        self._pipes[rank].send((method, arguments))

    def answer(self, rank: int) -> Any:
        assert self._pipes[rank].poll(ANSWER_S), f"rank {rank} does not answer"
        ok, value = self._pipes[rank].recv()
        assert ok, value
        return value

    def await_any(self, ranks: Sequence[int]) -> int:
        """Wait until one of these ranks has an answer, and say which."""
        ready = wait([self._pipes[rank] for rank in ranks], ANSWER_S)
        return next(rank for rank in ranks if self._pipes[rank] in ready)

    def kill(self, rank: int) -> None:
        """kill -9, and reap."""
        process = self.processes[rank]
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


class Rank:
    """What a rank process can do."""

    def __init__(self, group: TensorParallelGroup) -> None:
        self._group = group
        self._run: PagedRun | None = None

    def load(self, folder: Path, dtype: str) -> tuple[range, int]:
        """Load this rank's share and make its pool; returns its KV heads and the bytes of its weights."""
        model = load_model(open_checkpoint(folder), dtype, group=self._group)
        self._run = PagedRun(model, dtype, tokens=512)
        return model.share.kv_heads, sum(tensor_bytes(part) for part in matrices(model))

    def forced(self, prompts: Sequence[list[int]], outputs: Sequence[list[int]], chunk: int) -> Tensor:
        """Compute prompts, then given tokens, all sequences in each step; returns the logits of every row."""
        assert self._run is not None
        return forced(self._run, prompts, outputs, chunk)

    def all_reduce(self, values: list[float], dtype: str) -> list[float]:
        result: list[float] = self._group.all_reduce(torch.tensor(values, dtype=getattr(torch, dtype))).tolist()
        return result

    def gather(self, rows: int, widths: tuple[int, ...]) -> Tensor:
        """Gather columns that hold the number of their rank."""
        part = torch.full((rows, widths[self._group.rank]), float(self._group.rank))
        return self._group.gather_columns(part, widths)


def forced(run: PagedRun, prompts: Sequence[list[int]], outputs: Sequence[list[int]], chunk: int) -> Tensor:
    """Return the logits of every row: each prompt in chunks, then one step for each place of the outputs."""
    numbers = [run.open() for _ in prompts]
    logits = [run.prompt(number, ids, chunk) for number, ids in zip(numbers, prompts, strict=True)]
    places = zip(*outputs, strict=True)
    steps = [[(number, [token]) for number, token in zip(numbers, place, strict=True)] for place in places]
    return torch.cat([*logits, *map(run.step, steps)])


def matrices(model: Any) -> list[Tensor]:
    """Return the model's big tensors."""
    weights = model._weights
    linears = [part for layer in weights.layers for part in (layer.qkv, layer.output, layer.gate_up, layer.down)]
    return [weights.embedding, *(linear._weight for linear in [*linears, weights.head])]


def tensor_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _serve(pipe: Connection, rank: int, size: int, meeting: Path, timeout_s: float) -> None:
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    try:
        served = Rank(join_group(rank, size, meeting, timeout_s))
    except Exception as error:
        pipe.send((False, repr(error)))
        return
    while True:
        method, arguments = pipe.recv()
        try:
            pipe.send((True, getattr(served, method)(*arguments)))
        except Exception as error:
            pipe.send((False, repr(error)))
