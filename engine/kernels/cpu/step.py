"""The C++ step behind the interface of `engine.model.decoder.LanguageModel`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.kernels.cpu.build import BuildError, built_library
from engine.kernels.cpu.matrix import BLOCK, PackedMatrix

if TYPE_CHECKING:
    from engine.model.batch import ForwardBatch, SequenceSlice
    from engine.model.config import ModelConfig
    from engine.model.decoder import LayerWeights, Weights
    from engine.parallel.deal import Share


class _Matrix(ctypes.Structure):
    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("blocks", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("planes", ctypes.c_int64),
    )


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("input_norm", "q_norm", "k_norm", "post_norm")),
        *((name, _Matrix) for name in ("qkv", "output", "gate_up", "down")),
    )


class _Model(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("hidden", "heads", "kv_heads", "head_dim", "ffn")),
        ("rms_eps", ctypes.c_double),
        ("embedding", ctypes.c_void_p),
        ("norm", ctypes.c_void_p),
        ("layers", ctypes.POINTER(_Layer)),
        ("layer_count", ctypes.c_int64),
        ("head", _Matrix),
    )


class _Sequence(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("start", "length", "context")),
        ("pages", ctypes.c_void_p),
    )


class _Step(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("tokens", "sequence_count", "logit_count", "pages", "page_size")),
        *((name, ctypes.c_void_p) for name in ("ids", "slots", "logit_rows", "cosines", "sines")),
        ("sequences", ctypes.POINTER(_Sequence)),
        ("pool", ctypes.c_void_p),
        ("logits", ctypes.c_void_p),
    )


StepFunction = Callable[..., int]
"""`cpu_step` of the library: model, step, threads; 0, or 1 when there was no memory."""


def step_function(config: ModelConfig, cache: Path | None = None) -> StepFunction:
    """Return the compiled step, building it if need be. Raises BuildError where there is none for `config`."""
    if config.head_dim % 8:
        raise BuildError(f"head_dim {config.head_dim} is no multiple of 8")
    library = built_library(cache)
    try:
        return _loaded(library)
    except BuildError:
        # Another start may have removed it to bound the cache: the file is loaded by its name.
        if library.exists():
            raise
    return _loaded(built_library(cache))


def _loaded(library: Path) -> StepFunction:
    try:
        function: StepFunction = ctypes.CDLL(str(library)).cpu_step
    except (OSError, AttributeError) as error:
        raise BuildError(f"{library} cannot be loaded; remove it, and the next start compiles: {error}") from error
    return function


class CpuStep:
    """One model for the C++ step: weights in bf16 or in groups of 4 and 8 bits, KV in bf16, float32 between.

    With groups a matrix takes its input in 8 bits, a scale for each row and 32 columns.

    Uses as many threads as torch would. A row's results do not depend on the other rows, nor on the threads.
    """

    def __init__(
        self,
        function: StepFunction,
        config: ModelConfig,
        share: Share,
        weights: Weights[PackedMatrix],
        frequencies: Tensor,
    ) -> None:
        """`share` is the whole model; `frequencies`: radians per position `[head_dim / 2]`, float32."""
        self.config = config
        self.share = share
        self._run = function
        self._frequencies = frequencies
        self._kept: list[Tensor] = []
        self._layers = (_Layer * config.layers)(*map(self._layer, weights.layers))
        self._model = _Model(
            config.hidden,
            config.heads,
            config.kv_heads,
            config.head_dim,
            config.ffn,
            config.rms_eps,
            self._pointer(weights.embedding),
            self._floats(weights.norm),
            self._layers,
            config.layers,
            self._matrix(weights.head),
        )

    def forward(self, batch: ForwardBatch, kv: Tensor) -> Tensor:
        """Compute one step; returns float32 logits `[len(batch.logit_rows), vocab]`. See `LanguageModel`."""
        angles = batch.positions[:, None].float() * self._frequencies
        cosines, sines = angles.cos(), angles.sin()
        logits = torch.empty(len(batch.logit_rows), self._model.head.blocks * BLOCK)
        step = _Step(
            len(batch.token_ids),
            len(batch.sequences),
            len(batch.logit_rows),
            kv.shape[3],
            kv.shape[4],
            *(_address(tensor) for tensor in (batch.token_ids, batch.slots, batch.logit_rows, cosines, sines)),
            _sequences(batch.sequences),
            _address(kv),
            _address(logits),
        )
        if self._run(ctypes.byref(self._model), ctypes.byref(step), torch.get_num_threads()):
            raise MemoryError(f"no memory for a step of {len(batch.token_ids)} tokens")
        return logits[:, : self.config.vocab]

    def _layer(self, layer: LayerWeights[PackedMatrix]) -> _Layer:
        norms = (layer.input_norm, layer.q_norm, layer.k_norm, layer.post_norm)
        matrices = (layer.qkv, layer.output, layer.gate_up, layer.down)
        return _Layer(*map(self._floats, norms), *map(self._matrix, matrices))

    def _matrix(self, matrix: PackedMatrix) -> _Matrix:
        pointers = (self._pointer(tensor) for tensor in (matrix.weight, matrix.scales, matrix.bias))
        return _Matrix(*pointers, matrix.blocks, matrix.columns, matrix.planes)

    def _floats(self, tensor: Tensor | None) -> int | None:
        return None if tensor is None else self._pointer(tensor.float())

    def _pointer(self, tensor: Tensor | None) -> int | None:
        """Return the address, and hold on to the memory."""
        if tensor is None:
            return None
        self._kept.append(tensor.contiguous())
        return self._kept[-1].data_ptr()


def _address(tensor: Tensor) -> int:
    assert tensor.is_contiguous()
    return tensor.data_ptr()


def _sequences(slices: Sequence[SequenceSlice]) -> ctypes.Array[_Sequence]:
    parts = [_Sequence(one.start, one.length, one.context, _address(one.pages)) for one in slices]
    return (_Sequence * len(parts))(*parts)
