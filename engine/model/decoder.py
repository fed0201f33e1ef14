"""The forward pass of Llama, Qwen2 and Qwen3: they differ by a bias and a norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from engine.kernels.attention import Attention, step_attention
from engine.kernels.linear import Linear
from engine.model.batch import ForwardBatch
from engine.model.config import ModelConfig
from engine.parallel.deal import Share
from engine.parallel.group import TensorParallelGroup

MatrixT = TypeVar("MatrixT")
"""How a kernel wants its matrices: `Linear` for torch, `PackedMatrix` for the C++ step."""


@dataclass(frozen=True, slots=True)
class LayerWeights(Generic[MatrixT]):
    """One decoder layer. Projections that read the same input are one matrix."""

    input_norm: Tensor
    qkv: MatrixT
    """Rows: query heads, key heads, value heads."""
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: MatrixT
    post_norm: Tensor
    gate_up: MatrixT
    """Rows: gate, up."""
    down: MatrixT


@dataclass(frozen=True, slots=True)
class Weights(Generic[MatrixT]):
    """All of a model; `head` may hold the numbers of `embedding` in another order."""

    embedding: Tensor
    layers: tuple[LayerWeights[MatrixT], ...]
    norm: Tensor
    head: MatrixT


class ForwardPass(Protocol):
    """What a scheduler needs of a model, whoever computes it."""

    config: ModelConfig
    share: Share

    def forward(self, batch: ForwardBatch, kv: Tensor) -> Tensor:
        """See `LanguageModel.forward`."""


class LanguageModel:
    """Computes logits, and leaves the new tokens' keys and values in the pool.

    With a group of several ranks this is one of them, with its share of `weights`. All compute the same batch; they
    exchange the embedding, two sums a layer, and the logits.
    """

    def __init__(
        self, config: ModelConfig, weights: Weights[Linear], shares: Sequence[Share], group: TensorParallelGroup
    ) -> None:
        self.config = config
        self.share = shares[group.rank]
        self._group = group
        self._vocab_widths = tuple(len(share.vocab) for share in shares)
        self._heads = len(self.share.heads)
        self._kv_heads = len(self.share.kv_heads)
        self._weights = weights
        self._frequencies = rotary_frequencies(config).to(weights.embedding.device)

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, kv: Tensor) -> Tensor:
        """Compute one step; returns logits `[len(batch.logit_rows), vocab]`, on ranks other than 0 `[..., 0]`.

        They are float32, of a float64 model float64. `kv` is this rank's pool `[L, 2, H, P, S, D]` in the weights'
        dtype; it gets the new tokens' KV at `batch.slots` and must hold that of all earlier tokens of the sequences.
        When this returns on rank 0, every rank has written its KV: the last sum needs all of them.
        """
        weights = self._weights
        x = self._embedded(batch.token_ids)
        rotation = self._rotation(batch.positions, x.dtype)
        attention = step_attention(batch.sequences, batch.decodes, kv[0])
        for layer, layer_kv in zip(weights.layers, kv, strict=True):
            x = self._layer(layer, x, rotation, batch.slots, layer_kv, attention)
        x = self._norm(x[batch.logit_rows], weights.norm)
        logits = weights.head(x)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return self._group.gather_columns(logits, self._vocab_widths)

    def _embedded(self, ids: Tensor) -> Tensor:
        """Look up `[tokens, hidden]`; each token's row is on one rank, the others add zeros."""
        table = self._weights.embedding
        if self._group.size == 1:
            return functional.embedding(ids, table)
        rows = ids - self.share.vocab.start
        is_elsewhere = (rows < 0) | (rows >= len(self.share.vocab))
        x = functional.embedding(rows.masked_fill(is_elsewhere, 0), table)
        return self._group.all_reduce(x.masked_fill_(is_elsewhere[:, None], 0))

    def _layer(
        self,
        layer: LayerWeights[Linear],
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        slots: Tensor,
        kv: Tensor,
        attention: Attention,
    ) -> Tensor:
        head_dim = self.config.head_dim
        heads = layer.qkv(self._norm(x, layer.input_norm)).view(x.shape[0], -1, head_dim)
        rotated = heads[:, : self._heads + self._kv_heads]
        rotated.copy_(_rotated(self._head_norms(rotated, layer), *rotation))
        # Keys and values lie side by side in `heads` as they do in the pool: one write for both.
        planes = kv.view(2 * self._kv_heads, -1, head_dim)
        planes.index_copy_(1, slots, heads[:, self._heads :].transpose(0, 1))
        attended = attention(heads[:, : self._heads], kv)
        x = x + self._group.all_reduce(layer.output(attended.reshape(x.shape[0], -1)))
        gate, up = torch.chunk(layer.gate_up(self._norm(x, layer.post_norm)), 2, dim=-1)
        return x + self._group.all_reduce(layer.down(functional.silu(gate) * up))

    def _head_norms(self, rotated: Tensor, layer: LayerWeights[Linear]) -> Tensor:
        """Qwen3: an RMS norm over each query and key head."""
        if layer.q_norm is None or layer.k_norm is None:
            return rotated
        q, k = torch.split(rotated, [self._heads, self._kv_heads], dim=1)
        return torch.cat((self._norm(q, layer.q_norm), self._norm(k, layer.k_norm)), dim=1)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, weight.shape, weight, self.config.rms_eps)

    def _rotation(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cosines and signed sines `[tokens, 1, head_dim]`, worked out in float32."""
        angles = positions[:, None].float() * self._frequencies
        cosine, sine = angles.cos(), angles.sin()
        both = torch.cat((cosine, cosine), dim=-1), torch.cat((-sine, sine), dim=-1)
        return both[0][:, None].to(dtype), both[1][:, None].to(dtype)


def _rotated(x: Tensor, cosine: Tensor, signed_sine: Tensor) -> Tensor:
    """Rotate `[tokens, heads, head_dim]`; the two halves of a head are the two coordinates (Hugging Face)."""
    return torch.addcmul(x * cosine, x.roll(x.shape[-1] // 2, dims=-1), signed_sine)


def rotary_frequencies(config: ModelConfig) -> Tensor:
    """Return radians per position `[head_dim / 2]` in float32, by the formula of the models' training."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / (config.rope_theta**exponents)
    if config.rope_divisors is None:
        return frequencies
    return frequencies / torch.tensor(config.rope_divisors, dtype=torch.float32)
