"""The processor on which a rank computes and keeps its KV."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine.errors import ConfigError

CPU = torch.device("cpu")


def rank_device(kind: str, rank: int) -> torch.device:
    """Return the CPU, or for "cuda" the GPU with the number of the rank. Raises ConfigError where that is not there."""
    if kind == "cpu":
        return CPU
    count = torch.cuda.device_count()
    if not torch.cuda.is_available() or rank >= count:
        raise ConfigError(
            f"--device cuda: rank {rank} needs GPU {rank}, and torch {torch.__version__} sees {count}; "
            "leave the flag away, or take fewer --tp ranks"
        )
    return torch.device("cuda", rank)


def memory_bytes(device: torch.device) -> int:
    """Return how much there is for KV: what is free on a GPU; of a host all, since its pool grows as it is used."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def computing_on(device: torch.device) -> Iterator[None]:
    """Launch kernels on `device`, and leave when all of them are done: whoever reads the KV next is no kernel.

    A CPU is always where one is, and done when a call returns.
    """
    if device.type == "cpu":
        yield
        return
    with torch.cuda.device(device):
        yield
        torch.cuda.synchronize()
