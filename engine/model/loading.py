"""From a checkpoint to a model in memory."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from typing import Generic

import torch
from torch import Tensor

from engine.errors import ConfigError
from engine.kernels.cpu.build import BuildError
from engine.kernels.cpu.matrix import packed
from engine.kernels.cpu.step import CpuStep, step_function
from engine.kernels.device import CPU
from engine.kernels.linear import Linear
from engine.model.config import ModelConfig, tensor_shapes
from engine.model.decoder import ForwardPass, LanguageModel, LayerWeights, MatrixT, Weights, rotary_frequencies
from engine.model.gguf_blocks import GROUPED
from engine.model.grouped import Weight, plain, stacked
from engine.model.sharding import piece_of
from engine.model.stored import Checkpoint
from engine.parallel.deal import Share, deal
from engine.parallel.group import SingleRank, TensorParallelGroup

__all__ = ["load_model"]

log = logging.getLogger(__name__)

LAYERS = "model.layers."
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


def load_model(
    checkpoint: Checkpoint,
    dtype: str,
    device: torch.device = CPU,
    group: TensorParallelGroup | None = None,
    cpu_step: str = "off",
    quantization: str = "none",
) -> ForwardPass:
    """Read the weights of this rank of `group` (None: all); holds one tensor of the file beside the model itself.

    SmolLM2 from GGUF: 2 s. With `cpu_step` "auto" a whole bfloat16 model on a CPU is computed by the C++ step where
    that can be had (4 s more when it has to be compiled), else by torch. With `quantization` "gguf" that step takes the
    file's own 4- and 8-bit blocks; torch knows only bfloat16. Raises CheckpointError when the files changed since they
    were opened, ConfigError for an unknown dtype, a file without such blocks, or more ranks than the model can be dealt
    to.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r} is not supported; choose one of {', '.join(DTYPES)}")
    if quantization != "none":
        _check_groups(checkpoint)
    group = group or SingleRank()
    shares = deal(checkpoint.config, group.size)
    model: ForwardPass | None = None
    if cpu_step == "auto" and (dtype, device.type, group.size) == ("bfloat16", "cpu", 1):
        model = _compiled(checkpoint, shares[0], quantization == "gguf")
    if model is None:
        if quantization != "none":
            log.warning("--quantization %s has no effect: torch computes this model in %s", quantization, dtype)
        loader = _Loader(checkpoint.config, DTYPES[dtype], device, _linear)
        model = LanguageModel(checkpoint.config, loader.read(checkpoint, shares[group.rank]), shares, group)
    _return_free_memory()
    return model


def _check_groups(checkpoint: Checkpoint) -> None:
    encodings = {stored.encoding for stored in checkpoint.index}
    if checkpoint.decode_groups is None or not encodings & GROUPED.keys():
        raise ConfigError(
            f"--quantization gguf: {checkpoint.path} has no tensors in {', '.join(GROUPED)}, only in "
            f"{', '.join(sorted(encodings))}; leave the flag away"
        )


def _linear(weight: Weight, bias: Tensor | None) -> Linear:
    return Linear(plain(weight, torch.bfloat16), bias)


def _compiled(checkpoint: Checkpoint, share: Share, in_groups: bool) -> CpuStep | None:
    """Return the model for the C++ step; None, and one line in the log, where that cannot be had."""
    config = checkpoint.config
    try:
        function = step_function(config)
    except BuildError as error:
        log.warning("torch computes this model: the C++ step cannot be had: %s", error)
        return None
    log.info("the C++ step computes this model")
    loader = _Loader(config, torch.bfloat16, CPU, packed)
    weights = loader.read_groups(checkpoint) if in_groups else loader.read(checkpoint, share)
    return CpuStep(function, config, share, weights, rotary_frequencies(config))


def _return_free_memory() -> None:
    """Give back what dequantising left in glibc's heap: 66 MB for SmolLM2, a tenth of the process."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class _Loader(Generic[MatrixT]):
    """Collects tensors in any order, and packs a layer's matrices as soon as the layer is whole."""

    def __init__(
        self,
        config: ModelConfig,
        dtype: torch.dtype,
        device: torch.device,
        matrix: Callable[[Weight, Tensor | None], MatrixT],
    ) -> None:
        """`matrix` packs a weight and its bias as the kernels want them."""
        self._config = config
        self._matrix = matrix
        self._dtype = dtype
        self._device = device
        self._layer_size = sum(name.startswith(f"{LAYERS}0.") for name in tensor_shapes(config))
        self._outside: dict[str, Weight] = {}
        self._partial: dict[int, dict[str, Weight]] = {}
        self._layers: dict[int, LayerWeights[MatrixT]] = {}

    @torch.inference_mode()
    def read(self, checkpoint: Checkpoint, share: Share) -> Weights[MatrixT]:
        """Return this rank's share of the whole model."""
        for name, tensor in checkpoint.tensors(lambda name: piece_of(name, self._config, share)):
            self._take(name, tensor)
        return self._weights()

    @torch.inference_mode()
    def read_groups(self, checkpoint: Checkpoint) -> Weights[MatrixT]:
        """Return the whole model, its matrices in the groups in which they are stored."""
        for name, weight in checkpoint.grouped_tensors():
            self._take(name, weight)
        return self._weights()

    def _take(self, name: str, tensor: Weight) -> None:
        if isinstance(tensor, Tensor):
            tensor = tensor.to(device=self._device, dtype=self._dtype)
        if not name.startswith(LAYERS):
            self._outside[name] = tensor
            return
        number, _, part = name.removeprefix(LAYERS).partition(".")
        parts = self._partial.setdefault(int(number), {})
        parts[part] = tensor
        if len(parts) == self._layer_size:
            self._layers[int(number)] = self._layer(self._partial.pop(int(number)))

    def _weights(self) -> Weights[MatrixT]:
        # Whole: `open_checkpoint` has made sure that nothing is missing.
        embedding = self._outside["model.embed_tokens.weight"]
        head = embedding if self._config.tied_embeddings else self._outside["lm_head.weight"]
        layers = tuple(self._layers[index] for index in range(self._config.layers))
        norm = self._plain(self._outside["model.norm.weight"])
        return Weights(self._plain(embedding), layers, norm, self._matrix(head, None))

    def _plain(self, weight: Weight) -> Tensor:
        return plain(weight, self._dtype)

    def _layer(self, parts: dict[str, Weight]) -> LayerWeights[MatrixT]:
        def together(template: str, names: tuple[str, ...]) -> Weight:
            return stacked([parts[template.format(name)] for name in names], self._dtype)

        vectors = {name: self._plain(part) for name, part in parts.items() if not name.endswith("proj.weight")}
        biases = [vectors[name] for name in (f"self_attn.{each}_proj.bias" for each in "qkv") if name in vectors]
        bias = torch.cat(biases) if biases else None
        return LayerWeights(
            input_norm=vectors["input_layernorm.weight"],
            qkv=self._matrix(together("self_attn.{}_proj.weight", ("q", "k", "v")), bias),
            q_norm=vectors.get("self_attn.q_norm.weight"),
            k_norm=vectors.get("self_attn.k_norm.weight"),
            output=self._matrix(parts["self_attn.o_proj.weight"], None),
            post_norm=vectors["post_attention_layernorm.weight"],
            gate_up=self._matrix(together("mlp.{}_proj.weight", ("gate", "up")), None),
            down=self._matrix(parts["mlp.down_proj.weight"], None),
        )
