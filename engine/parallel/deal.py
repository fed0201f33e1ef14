"""Which part of a model each rank of a tensor-parallel group holds. Pure: the same on every rank and on a peer.

Query heads follow their KV head, because they read it. KV heads are dealt in neighbouring runs, the first ranks
taking one more where they do not divide (3 among 2: 2 + 1). Where there are fewer KV heads than ranks, neighbouring
ranks hold the same one and share its query heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from engine.errors import ConfigError
from engine.model.config import ModelConfig

FFN_UNIT = 32
"""The MLP's rows are dealt in whole quantisation blocks, so that a rank's part of a stored matrix is whole blocks."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank holds, as ranges of the whole model's numbering."""

    rank: int
    size: int
    """Ranks in the group."""
    heads: range
    """Query heads: rows of the query projection, columns of the output projection."""
    kv_heads: range
    """KV heads; several ranks hold the same one where there are fewer of them than ranks."""
    ffn: range
    """Rows of gate and up, columns of down."""
    vocab: range
    """Rows of the embedding table and of the output projection."""


def deal(config: ModelConfig, size: int) -> tuple[Share, ...]:
    """Return the share of each of `size` ranks; raises ConfigError when some rank would get no query head."""
    if not 1 <= size <= config.heads:
        raise ConfigError(f"tensor parallel over {size} ranks: this model has {config.heads} query heads, so 1 to that")
    heads = _heads(config, size)
    ffn = split(config.ffn, size, FFN_UNIT if config.ffn >= FFN_UNIT * size else 1)
    vocab = split(config.vocab, size)
    return tuple(Share(rank, size, *heads[rank], ffn[rank], vocab[rank]) for rank in range(size))


def split(total: int, parts: int, unit: int = 1) -> tuple[range, ...]:
    """Cut `range(total)` into neighbouring parts of whole units, the first ones longer; the last ends at `total`."""
    units = -(-total // unit)
    short, longer = divmod(units, parts)
    ends = [min(unit * (part * short + min(part, longer)), total) for part in range(parts + 1)]
    return tuple(range(start, end) for start, end in pairwise(ends))


def _heads(config: ModelConfig, size: int) -> list[tuple[range, range]]:
    """Return (query heads, KV heads) of each rank."""
    group = config.heads // config.kv_heads
    if size <= config.kv_heads:
        return [(range(kv.start * group, kv.stop * group), kv) for kv in split(config.kv_heads, size)]
    return [
        (range(kv * group + part.start, kv * group + part.stop), range(kv, kv + 1))
        for kv, holders in enumerate(split(size, config.kv_heads))
        for part in split(group, len(holders))
    ]
