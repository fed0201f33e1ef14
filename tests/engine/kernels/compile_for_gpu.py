"""Compile the Triton kernels for GPUs, which needs none: `python -m tests.engine.kernels.compile_for_gpu`.

Triton's interpreter takes what its compiler refuses. A process of its own, because the tests ask for the interpreter.
"""

from __future__ import annotations

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from engine.kernels import paged_triton

SHARED_BYTES = 99 << 10
"""Shared memory of one block on the smallest of the devices in use (compute capability 8.6, 8.9)."""
MODELS = {
    80: {"KV_HEADS": 3, "DIM": 64, "GROUP": 3},
    90: {"KV_HEADS": 8, "DIM": 128, "GROUP": 4},
}
"""Compute capability, and the shape of a model: SmolLM2 135M, Llama 3 8B."""
NUMBERS = "*bf16"
WHOLE = dict.fromkeys(("table_width", "splits", "span", "first_place"), "i32")


def compiled(kernel: Any, signature: dict[str, str], constants: dict[str, Any], target: GPUTarget) -> Any:
    """Return the kernel for `target`; what `signature` does not name are `constants`."""
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    return triton.compile(ASTSource(kernel, signature | dict.fromkeys(constants, "constexpr"), places), target=target)


def main() -> None:
    """Compile both kernels for every model and height."""
    for capability, model in MODELS.items():
        target = GPUTarget("cuda", capability, 32)
        width = triton.next_power_of_2(model["DIM"])
        for rows in (paged_triton.MIN_ROWS, paged_triton.MAX_ROWS):
            constants = model | {"PAGES": 4096, "SLOTS": 16, "ROWS": rows, "KEYS": paged_triton.KEYS}
            signature = {"q": NUMBERS, "kv": NUMBERS, "out": "*fp32", "sums": "*fp32", "tiles": "*i32"}
            signature |= {"tables": "*i64", **WHOLE, "scale": "fp32"}
            attend = compiled(paged_triton._attend, signature, constants | {"WIDTH": width, "WIDE": False}, target)
            assert attend.metadata.shared <= SHARED_BYTES, (model, rows, attend.metadata.shared)
        constants = {"DIM": model["DIM"], "WIDTH": width, "AT_ONCE": paged_triton.SPLITS_AT_ONCE}
        signature = {"parts": "*fp32", "sums": "*fp32", "out": NUMBERS, "splits": "i32"}
        compiled(paged_triton._combine, signature, constants, target)


if __name__ == "__main__":
    main()
