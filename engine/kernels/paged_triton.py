"""Attention over pages in Triton: for the decodes and the prompt chunks of a step one kernel, without copying a page.

A tile is up to 16 or 64 query rows of one sequence and one KV head: its new tokens times the G query heads that share
the head, token by token. A decode's long context is cut into splits, so that one sequence fills the device; a second
kernel puts them together (Flash-Decoding, Dao et al. 2023). A chunk has tiles enough, and one split. Where the splits
begin depends on nothing but the sequence, so its sums are the same in any company.

What changes from step to step is no constant of a kernel and not specialised: nothing is compiled while requests run.

Tested in Triton's interpreter, which multiplies bfloat16 wrongly (3.7 to 3.9); there both operands are widened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.model.batch import SequenceSlice

SPLIT_TOKENS = 512
"""Context of one split. A bound on how far a sequence is spread, not a tuned figure: never run on a device yet."""
SPLITS_AT_ONCE = 16
"""That are put together in one go."""
MIN_ROWS, MAX_ROWS = 16, 64
"""Rows of a tile: tensor cores take 16 at least."""
KEYS = 32


@triton.jit(do_not_specialize=["table_width", "splits", "span", "first_place"])
def _attend(
    q, kv, out, sums, tiles, tables, table_width, splits, span, first_place, scale,
    KV_HEADS: tl.constexpr, PAGES: tl.constexpr, SLOTS: tl.constexpr, DIM: tl.constexpr, GROUP: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One tile, one KV head, one split: softmax over its keys, not yet normalised, and its log-sum."""
    tile, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    sequence = tl.load(tiles + tile * 4)
    first_row = tl.load(tiles + tile * 4 + 1)
    end_row = tl.load(tiles + tile * 4 + 2)
    first_position = tl.load(tiles + tile * 4 + 3)

    rows = first_row + tl.arange(0, ROWS)
    dims = tl.arange(0, WIDTH)
    is_row, is_dim = rows < end_row, dims < DIM
    positions = first_position + tl.arange(0, ROWS) // GROUP
    # 64 bits: a place times its splits times DIM is more than 32 hold.
    places = (rows // GROUP).to(tl.int64) * (KV_HEADS * GROUP) + head * GROUP + rows % GROUP
    queries = tl.load(q + places[:, None] * DIM + dims[None, :], mask=is_row[:, None] & is_dim[None, :], other=0.0)
    if WIDE:
        queries = queries.to(tl.float32)

    largest = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    blended = tl.zeros((ROWS, WIDTH), tl.float32)
    end = tl.minimum((split + 1) * span, tl.max(tl.where(is_row, positions, 0), axis=0) + 1)
    for start in range(split * span, end, KEYS):
        tokens = start + tl.arange(0, KEYS)
        is_token = tokens < end
        page = tl.load(tables + sequence * table_width + tokens // SLOTS, mask=is_token, other=0)
        places_kv = ((head * PAGES + page) * SLOTS + tokens % SLOTS) * DIM
        mask = is_token[:, None] & is_dim[None, :]
        keys = tl.load(kv + places_kv[:, None] + dims[None, :], mask=mask, other=0.0)
        values = tl.load(kv + KV_HEADS * PAGES * SLOTS * DIM + places_kv[:, None] + dims[None, :], mask=mask, other=0.0)
        if WIDE:
            keys, values = keys.to(tl.float32), values.to(tl.float32)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where(is_token[None, :] & (tokens[None, :] <= positions[:, None]), scores, -float("inf"))
        top = tl.maximum(largest, tl.max(scores, axis=1))
        # A row that has seen no key yet: any finite number, so that no infinity is taken from another.
        base = tl.where(top == -float("inf"), 0.0, top)
        weights = tl.exp(scores - base[:, None])
        shrink = tl.exp(largest - base)
        total = total * shrink + tl.sum(weights, axis=1)
        blended = blended * shrink[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        largest = top

    at = (places - first_place) * splits + split
    tl.store(out + at[:, None] * DIM + dims[None, :], blended, mask=is_row[:, None] & is_dim[None, :])
    tl.store(sums + at * 2, largest, mask=is_row)
    tl.store(sums + at * 2 + 1, total, mask=is_row)


@triton.jit(do_not_specialize=["splits"])
def _combine(parts, sums, out, splits, DIM: tl.constexpr, WIDTH: tl.constexpr, AT_ONCE: tl.constexpr):
    """One query row: its splits, weighted by their sums. The first of them has seen a key."""
    row = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, WIDTH)
    is_dim = dims < DIM
    largest, total, blended = -float("inf"), 0.0, tl.zeros((WIDTH,), tl.float32)
    for start in range(0, splits, AT_ONCE):
        numbers = start + tl.arange(0, AT_ONCE)
        is_split = numbers < splits
        at = row * splits + numbers
        tops = tl.load(sums + at * 2, mask=is_split, other=-float("inf"))
        totals = tl.load(sums + at * 2 + 1, mask=is_split, other=0.0)
        mask = is_split[:, None] & is_dim[None, :]
        part = tl.load(parts + at[:, None] * DIM + dims[None, :], mask=mask, other=0.0)
        top = tl.maximum(largest, tl.max(tops, axis=0))
        weights, shrink = tl.exp(tops - top), tl.exp(largest - top)
        total = total * shrink + tl.sum(totals * weights, axis=0)
        blended = blended * shrink + tl.sum(part * weights[:, None], axis=0)
        largest = top
    tl.store(out + row * DIM + dims, blended / total, mask=is_dim)


@dataclass(frozen=True, slots=True)
class _Launch:
    """The tiles of neighbouring sequences, of one height."""

    tiles: Tensor
    """int32 `[tiles, 4]`: sequence, first row, end of its rows, position of the first; rows are tokens times GROUP."""
    height: int
    splits: int
    span: int
    """Context of one split, in tokens."""
    first: int
    """First token of the step that it computes."""
    count: int
    """Tokens that it computes."""


class TritonAttention:
    """Attention of one step; same interface and results as `engine.kernels.attention.TorchAttention`, but for rounding.

    float32, float16 or bfloat16.
    """

    def __init__(self, sequences: Sequence[SequenceSlice], decodes: int, kv: Tensor) -> None:
        """`kv` is any layer `[2, H, P, S, D]`; the first `decodes` sequences have one new token each."""
        most = max(one.pages.numel() for one in sequences)
        table = torch.zeros(len(sequences), most, dtype=torch.int64)
        for row, one in zip(table, sequences, strict=True):
            row[: one.pages.numel()] = one.pages
        self._table = table.to(kv.device)
        numbered = list(enumerate(sequences))
        parts = ((numbered[:decodes], MIN_ROWS, SPLIT_TOKENS), (numbered[decodes:], MAX_ROWS, None))
        self._parts = [part for part in parts if part[0]]
        self._launches: list[_Launch] = []

    def __call__(self, q: Tensor, kv: Tensor) -> Tensor:
        """Return `[tokens, Hq, D]` for queries of that shape; `kv` holds the new tokens already."""
        if not self._launches:
            group = q.shape[1] // kv.shape[1]
            self._launches = [_launch(part, height, span, group, kv.device) for part, height, span in self._parts]
        q = q.contiguous()
        out = torch.empty_like(q)
        for launch in self._launches:
            self._run(launch, q, kv, out)
        return out

    def _run(self, launch: _Launch, q: Tensor, kv: Tensor, out: Tensor) -> None:
        _, heads, dim = q.shape
        _, kv_heads, pages, slots, _ = kv.shape
        width = max(16, triton.next_power_of_2(dim))
        rows = launch.count * heads
        parts = q.new_empty(rows, launch.splits, dim, dtype=torch.float32)
        sums = q.new_empty(rows, launch.splits, 2, dtype=torch.float32)
        _attend[(len(launch.tiles), kv_heads, launch.splits)](
            q, kv, parts, sums, launch.tiles, self._table, self._table.shape[1], launch.splits, launch.span,
            launch.first * heads, dim**-0.5,
            KV_HEADS=kv_heads, PAGES=pages, SLOTS=slots, DIM=dim, GROUP=heads // kv_heads,
            ROWS=launch.height, KEYS=KEYS, WIDTH=width, WIDE=not q.is_cuda,
        )  # fmt: skip
        _combine[(rows,)](parts, sums, out[launch.first :], launch.splits, DIM=dim, WIDTH=width, AT_ONCE=SPLITS_AT_ONCE)


def _launch(
    part: list[tuple[int, SequenceSlice]], height: int, span: int | None, group: int, device: torch.device
) -> _Launch:
    """Cut neighbouring sequences of a step, with their numbers, into tiles, and their context (None: not)."""
    tokens = max(1, height // group)
    most = max(one.context for _, one in part)
    span = span or most
    tiles = [
        (number, group * (one.start + at), group * (one.start + min(at + tokens, one.length)), before + at)
        for number, one in part
        for before in (one.context - one.length,)
        for at in range(0, one.length, tokens)
    ]
    return _Launch(
        tiles=torch.tensor(tiles, dtype=torch.int32).to(device),
        height=max(height, triton.next_power_of_2(group)),
        splits=-(-most // span),
        span=span,
        first=part[0][1].start,
        count=sum(one.length for _, one in part),
    )
