"""Where each tensor of a model is cut when ranks share it. Pure.

Projections that read the residual are cut by rows (each rank computes whole heads, whole MLP rows, whole words), those
that write it by columns (each rank adds its part, one all_reduce makes the sum).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.model.config import ModelConfig
from engine.model.stored import Piece
from engine.parallel.deal import Share

Cut = Callable[[Share, int], Piece]
"""From a share and head_dim to the piece of one tensor."""


def _times(heads: range, head_dim: int) -> range:
    return range(heads.start * head_dim, heads.stop * head_dim)


CUTS: Mapping[str, Cut] = {
    "embed_tokens": lambda share, _: Piece(rows=share.vocab),
    "lm_head": lambda share, _: Piece(rows=share.vocab),
    "q_proj": lambda share, dim: Piece(rows=_times(share.heads, dim)),
    "k_proj": lambda share, dim: Piece(rows=_times(share.kv_heads, dim)),
    "v_proj": lambda share, dim: Piece(rows=_times(share.kv_heads, dim)),
    "o_proj": lambda share, dim: Piece(columns=_times(share.heads, dim)),
    "gate_proj": lambda share, _: Piece(rows=share.ffn),
    "up_proj": lambda share, _: Piece(rows=share.ffn),
    "down_proj": lambda share, _: Piece(columns=share.ffn),
}
"""By the last word of the tensor's name; what is not here (the norms) every rank holds whole."""


def piece_of(name: str, config: ModelConfig, share: Share) -> Piece:
    """Return the piece of the tensor `name` (weight or bias, canonical) that belongs to `share`."""
    module = name.rpartition(".")[0].rpartition(".")[2]
    cut = CUTS.get(module)
    return Piece() if cut is None or share.size == 1 else cut(share, config.head_dim)
