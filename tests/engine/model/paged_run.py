"""Drives a model as the scheduler does: pages in disorder, prompts in chunks, all sequences in one step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.model.batch import ForwardBatch, SequenceSlice
from engine.model.decoder import ForwardPass

PAGE_SIZE = 16


class PagedRun:
    """A pool and the sequences in it."""

    def __init__(self, model: ForwardPass, dtype: str, tokens: int, page_size: int = PAGE_SIZE) -> None:
        """`tokens`: capacity of the pool."""
        config = model.config
        pages = -(-tokens // page_size)
        shape = (config.layers, 2, len(model.share.kv_heads), pages, page_size, config.head_dim)
        self.model = model
        self._page_size = page_size
        self.kv = torch.zeros(shape, dtype=getattr(torch, dtype))
        order = torch.randperm(pages, generator=torch.Generator().manual_seed(1))
        self._free: list[int] = order.tolist()
        self._pages: list[list[int]] = []
        self._computed: list[int] = []

    def open(self) -> int:
        """Add an empty sequence and return its number."""
        self._pages.append([])
        self._computed.append(0)
        return len(self._pages) - 1

    def pages(self, number: int) -> list[int]:
        """Return a sequence's pages in order."""
        return self._pages[number]

    def rewind(self, number: int, tokens: int) -> None:
        """Forget all but the first tokens of a sequence; it keeps its pages."""
        self._computed[number] = tokens

    def step(self, work: Sequence[tuple[int, list[int]]]) -> Tensor:
        """Compute new tokens of some sequences, single ones first; returns logits of every row."""
        slices, ids, positions, slots = [], [], [], []
        size = self._page_size
        for number, new in work:
            start, end = self._computed[number], self._computed[number] + len(new)
            pages = self._pages[number]
            pages += [self._free.pop() for _ in range(-(-end // size) - len(pages))]
            slices.append(SequenceSlice(len(ids), len(new), end, torch.tensor(pages)))
            ids += new
            positions += range(start, end)
            slots += [pages[at // size] * size + at % size for at in range(start, end)]
            self._computed[number] = end
        batch = ForwardBatch(
            token_ids=torch.tensor(ids),
            positions=torch.tensor(positions),
            slots=torch.tensor(slots),
            sequences=tuple(slices),
            decodes=sum(len(new) == 1 for _, new in work),
            logit_rows=torch.arange(len(ids)),
        )
        return self.model.forward(batch, self.kv)

    def prompt(self, number: int, ids: list[int], chunk: int) -> Tensor:
        """Compute a prompt in chunks; returns the logits of all its rows."""
        return torch.cat([self.step([(number, ids[at : at + chunk])]) for at in range(0, len(ids), chunk)])

    def greedy(self, prompts: Sequence[list[int]], tokens: int, chunk: int) -> list[list[int]]:
        """Return `tokens` greedy tokens of each prompt; decoding goes on with all sequences in each step."""
        numbers = [self.open() for _ in prompts]
        outputs = [
            [int(self.prompt(number, ids, chunk)[-1].argmax())] for number, ids in zip(numbers, prompts, strict=True)
        ]
        for _ in range(tokens - 1):
            logits = self.step([(number, output[-1:]) for number, output in zip(numbers, outputs, strict=True)])
            for output, token_id in zip(outputs, logits.argmax(-1).tolist(), strict=True):
                output.append(token_id)
        return outputs
