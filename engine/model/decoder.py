"""The forward pass of Llama, Qwen2 and Qwen3: they differ by a bias and a norm."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.kernels.attention import StepAttention
from engine.kernels.linear import Linear
from engine.model.batch import ForwardBatch
from engine.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer. Projections that read the same input are one matrix."""

    input_norm: Tensor
    qkv: Linear
    """Rows: query heads, key heads, value heads."""
    q_norm: Tensor | None
    k_norm: Tensor | None
    output: Linear
    post_norm: Tensor
    gate_up: Linear
    """Rows: gate, up."""
    down: Linear


@dataclass(frozen=True, slots=True)
class Weights:
    """All of a model; `head` may hold the numbers of `embedding` in another order."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Linear


class LanguageModel:
    """Computes logits, and leaves the new tokens' keys and values in the pool."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config = config
        self._weights = weights
        self._frequencies = _rotary_frequencies(config).to(weights.embedding.device)

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, kv: Tensor) -> Tensor:
        """Compute one step; returns float32 logits `[len(batch.logit_rows), vocab]`.

        `kv` is the pool `[L, 2, H, P, S, D]` in the weights' dtype; it gets the new tokens' KV at
        `batch.slots` and must hold that of all earlier tokens of the sequences.
        """
        weights = self._weights
        x = functional.embedding(batch.token_ids, weights.embedding)
        rotation = self._rotation(batch.positions, x.dtype)
        attention = StepAttention(batch.sequences, batch.decodes, kv[0])
        for layer, layer_kv in zip(weights.layers, kv, strict=True):
            x = self._layer(layer, x, rotation, batch.slots, layer_kv, attention)
        x = self._norm(x[batch.logit_rows], weights.norm)
        return weights.head(x).float()

    def _layer(
        self,
        layer: LayerWeights,
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        slots: Tensor,
        kv: Tensor,
        attention: StepAttention,
    ) -> Tensor:
        config = self.config
        heads = layer.qkv(self._norm(x, layer.input_norm)).view(x.shape[0], -1, config.head_dim)
        rotated = heads[:, : config.heads + config.kv_heads]
        rotated.copy_(_rotated(self._head_norms(rotated, layer), *rotation))
        # Keys and values lie side by side in `heads` as they do in the pool: one write for both.
        planes = kv.view(2 * config.kv_heads, -1, config.head_dim)
        planes.index_copy_(1, slots, heads[:, config.heads :].transpose(0, 1))
        attended = attention(heads[:, : config.heads], kv)
        x = x + layer.output(attended.reshape(x.shape[0], -1))
        gate, up = torch.split(layer.gate_up(self._norm(x, layer.post_norm)), config.ffn, dim=-1)
        return x + layer.down(functional.silu(gate) * up)

    def _head_norms(self, rotated: Tensor, layer: LayerWeights) -> Tensor:
        """Qwen3: an RMS norm over each query and key head."""
        if layer.q_norm is None or layer.k_norm is None:
            return rotated
        q, k = torch.split(rotated, [self.config.heads, self.config.kv_heads], dim=1)
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


def _rotary_frequencies(config: ModelConfig) -> Tensor:
    """Return radians per position `[head_dim / 2]` in float32, by the formula of the models' training."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequencies = 1.0 / (config.rope_theta**exponents)
    if config.rope_divisors is None:
        return frequencies
    return frequencies / torch.tensor(config.rope_divisors, dtype=torch.float32)
