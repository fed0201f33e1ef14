"""The Triton kernels, compiled, against the torch reference on a CUDA device: time and largest difference.

    python -m benchmarks.kernels

Shapes of SmolLM2-135M and of an 8-billion Llama, pages of 16 in disorder. Torch copies scattered pages together
first; that is part of its time. Without a CUDA device nothing runs, and it says so.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.command import run
from engine.kernels.attention import TorchAttention
from engine.model.batch import SequenceSlice

PAGE_SIZE = 16
TOLERANCE = 2e-2


@dataclass(frozen=True, slots=True)
class Case:
    """One step over one layer."""

    name: str
    kv_heads: int
    group: int
    head_dim: int
    sequences: int
    new_tokens: int
    context: int


CASES = (
    Case("SmolLM2 decode, 1", 3, 3, 64, 1, 1, 2048),
    Case("SmolLM2 decode, 16", 3, 3, 64, 16, 1, 1024),
    Case("Llama 8B decode, 1", 8, 4, 128, 1, 1, 16384),
    Case("Llama 8B decode, 64", 8, 4, 128, 64, 1, 2048),
    Case("Llama 8B chunk of 512", 8, 4, 128, 1, 512, 4096),
)


def main() -> None:
    """Print one line a case; ends with 1 when a kernel differs from torch."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if not torch.cuda.is_available():
        print("kernels: did not run: there is no CUDA device here (the tests run them in Triton's interpreter)")
        return
    print(
        f"{torch.cuda.get_device_name()}\n{'case':24} {'torch us':>9} {'triton us':>10} {'ratio':>6} {'difference':>11}"
    )
    agreements = [measured(case) for case in CASES]
    if not all(agreements):
        raise SystemExit(f"a kernel differs from torch by more than {TOLERANCE}")


def measured(case: Case) -> bool:
    """Print a case's line; returns whether both agree."""
    # Imported here: without CUDA it would compile nothing and need Triton all the same.
    from engine.kernels.paged_triton import TritonAttention

    pages = -(-case.context // PAGE_SIZE)
    order = torch.randperm(case.sequences * pages).view(case.sequences, pages)
    parts = [
        SequenceSlice(number * case.new_tokens, case.new_tokens, case.context, numbers)
        for number, numbers in enumerate(order)
    ]
    shape = (2, case.kv_heads, case.sequences * pages, PAGE_SIZE, case.head_dim)
    kv = torch.randn(shape, dtype=torch.bfloat16, device="cuda")
    heads = case.kv_heads * case.group
    q = torch.randn(case.sequences * case.new_tokens, heads, case.head_dim, dtype=torch.bfloat16, device="cuda")
    decodes = case.sequences if case.new_tokens == 1 else 0
    ours, theirs = TritonAttention(parts, decodes, kv), TorchAttention(parts, decodes, kv)
    difference = (ours(q, kv).float() - theirs(q, kv).float()).abs().max().item()
    torch_us, triton_us = microseconds(lambda: theirs(q, kv)), microseconds(lambda: ours(q, kv))
    print(f"{case.name:24} {torch_us:9.1f} {triton_us:10.1f} {torch_us / triton_us:6.2f} {difference:11.2e}")
    return difference <= TOLERANCE


def microseconds(run: Callable[[], Tensor], rounds: int = 50) -> float:
    """Return the mean time of a call on the device, after five to warm up."""
    for _ in range(5):
        run()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    for _ in range(rounds):
        run()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) * 1000 / rounds


if __name__ == "__main__":
    run(main)
