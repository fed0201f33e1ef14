"""From a checkpoint to a model in memory."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from engine.errors import ConfigError
from engine.kernels.linear import Linear
from engine.model.config import ModelConfig, tensor_shapes
from engine.model.decoder import LanguageModel, LayerWeights, Weights
from engine.model.sharding import piece_of
from engine.model.stored import Checkpoint
from engine.parallel.deal import deal
from engine.parallel.group import SingleRank, TensorParallelGroup

__all__ = ["LanguageModel", "load_model"]

LAYERS = "model.layers."
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


def load_model(
    checkpoint: Checkpoint, dtype: str, device: str = "cpu", group: TensorParallelGroup | None = None
) -> LanguageModel:
    """Read the weights of this rank of `group` (None: all); holds one tensor of the file beside the model itself.

    SmolLM2 from GGUF: 2 s. Raises CheckpointError when the files changed since they were opened, ConfigError
    for an unknown dtype, or a group of more ranks than the model can be dealt to.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r} is not supported; choose one of {', '.join(DTYPES)}")
    group = group or SingleRank()
    config = checkpoint.config
    shares = deal(config, group.size)
    loader = _Loader(config, DTYPES[dtype], device)
    with torch.inference_mode():
        for name, tensor in checkpoint.tensors(lambda name: piece_of(name, config, shares[group.rank])):
            loader.take(name, tensor)
        model = LanguageModel(config, loader.weights(), shares, group)
    _return_free_memory()
    return model


def _return_free_memory() -> None:
    """Give back what dequantising left in glibc's heap: 66 MB for SmolLM2, a tenth of the process."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class _Loader:
    """Collects tensors in any order, and packs a layer's matrices as soon as the layer is whole."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: str) -> None:
        self._config = config
        self._dtype = dtype
        self._device = device
        self._layer_size = sum(name.startswith(f"{LAYERS}0.") for name in tensor_shapes(config))
        self._outside: dict[str, Tensor] = {}
        self._partial: dict[int, dict[str, Tensor]] = {}
        self._layers: dict[int, LayerWeights] = {}

    def take(self, name: str, tensor: Tensor) -> None:
        """Add a tensor under its canonical name."""
        tensor = tensor.to(device=self._device, dtype=self._dtype)
        if not name.startswith(LAYERS):
            self._outside[name] = tensor
            return
        number, _, part = name.removeprefix(LAYERS).partition(".")
        parts = self._partial.setdefault(int(number), {})
        parts[part] = tensor
        if len(parts) == self._layer_size:
            self._layers[int(number)] = _layer(self._partial.pop(int(number)))

    def weights(self) -> Weights:
        """Return the whole model; `open_checkpoint` has made sure that nothing is missing."""
        embedding = self._outside["model.embed_tokens.weight"]
        head = embedding if self._config.tied_embeddings else self._outside["lm_head.weight"]
        layers = tuple(self._layers[index] for index in range(self._config.layers))
        return Weights(embedding, layers, self._outside["model.norm.weight"], Linear(head))


def _layer(parts: dict[str, Tensor]) -> LayerWeights:
    def together(template: str, names: tuple[str, ...]) -> Tensor:
        return torch.cat([parts[template.format(name)] for name in names])

    bias = together("self_attn.{}_proj.bias", ("q", "k", "v")) if "self_attn.q_proj.bias" in parts else None
    return LayerWeights(
        input_norm=parts["input_layernorm.weight"],
        qkv=Linear(together("self_attn.{}_proj.weight", ("q", "k", "v")), bias),
        q_norm=parts.get("self_attn.q_norm.weight"),
        k_norm=parts.get("self_attn.k_norm.weight"),
        output=Linear(parts["self_attn.o_proj.weight"]),
        post_norm=parts["post_attention_layernorm.weight"],
        gate_up=Linear(together("mlp.{}_proj.weight", ("gate", "up"))),
        down=Linear(parts["mlp.down_proj.weight"]),
    )
