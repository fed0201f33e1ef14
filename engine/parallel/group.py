"""The collectives of one tensor-parallel group: gloo between processes of a CPU, NCCL between GPUs.

Every rank has to call the same collectives in the same order, with tensors of the same shape; that is why nothing but
the model's forward pass, which is the same on all ranks for one batch, calls them (invariant 6). A collective cannot be
cancelled. When a rank dies, those that exchange data with it over gloo raise `RankLost` at once, the others when those
have ended: so a rank that gets it must end its process. NCCL's waiting is the GPU's, and raises nothing: there the API
process, which sees a rank die, ends the others.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as distributed
from torch import Tensor

from engine.errors import RankLost
from engine.kernels.device import CPU, computing_on

LOOPBACK = "127.0.0.1"


class TensorParallelGroup(Protocol):
    """One rank's view of its group."""

    @property
    def rank(self) -> int:
        """Number of this rank; 0 decides and samples."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    def all_reduce(self, part: Tensor) -> Tensor:
        """Return the sum of all ranks' `part`, the same bits on every rank. `part` is used up."""

    def gather_columns(self, part: Tensor, widths: tuple[int, ...]) -> Tensor:
        """Return on rank 0 all ranks' `[rows, widths[rank]]` side by side; on the others `[rows, 0]`."""


class SingleRank:
    """A group of one: nothing to exchange, nothing to pay."""

    rank = 0
    size = 1

    def all_reduce(self, part: Tensor) -> Tensor:
        """Return `part`."""
        return part

    def gather_columns(self, part: Tensor, widths: tuple[int, ...]) -> Tensor:
        """Return `part`."""
        return part


class ProcessRanks:
    """Ranks in processes of their own. One thread at a time uses it."""

    def __init__(self, group: Any, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self._group = group

    def all_reduce(self, part: Tensor) -> Tensor:
        """Sum in place; see the protocol. Raises RankLost."""
        part = part.contiguous()
        self._wait("all_reduce", lambda: self._group.allreduce([part]))
        return part

    def gather_columns(self, part: Tensor, widths: tuple[int, ...]) -> Tensor:
        """Send to rank 0; see the protocol. Raises RankLost."""
        part = part.contiguous()
        if self.rank != 0:
            self._wait("send", lambda: self._group.send([part], 0, 0))
            return part[:, :0]
        parts = [part] + [part.new_empty(part.shape[0], width) for width in widths[1:]]
        for rank in range(1, self.size):
            self._wait("receive", lambda rank=rank: self._group.recv([parts[rank]], rank, 0))
        return torch.cat(parts, dim=-1)

    def _wait(self, what: str, call: Any) -> None:
        try:
            call().wait()
        except RuntimeError as error:
            why = f"{what} on rank {self.rank} of {self.size} failed: {error}; most likely another rank is gone"
            raise RankLost(why) from error


def join_group(
    rank: int, size: int, meeting: Path, timeout_s: float, device: torch.device = CPU
) -> TensorParallelGroup:
    """Meet the other ranks of this instance in the file `meeting`, which the first one makes.

    Blocks until all have come and exchanged something, at most `timeout_s`, which then bounds each collective; raises
    RankLost. The group is no global of torch, so that one process may hold several.
    """
    if size == 1:
        return SingleRank()
    limit = timedelta(seconds=timeout_s)
    store = distributed.FileStore(str(meeting), size)  # type: ignore[attr-defined]  # Missing in torch's own __all__.
    store.set_timeout(limit)
    try:
        group = _gloo(store, rank, size, limit) if device.type == "cpu" else _nccl(store, rank, size, limit)
    except RuntimeError as error:
        raise RankLost(f"rank {rank} of {size} did not meet the others within {timeout_s:g} s: {error}") from error
    ranks = ProcessRanks(group, rank, size)
    # NCCL connects ranks only when they first exchange something: that must not be a client's request.
    with computing_on(device):
        ranks.all_reduce(torch.zeros(1, device=device))
        ranks.gather_columns(torch.zeros(1, 1, device=device), (1,) * size)
    return ranks


def _gloo(store: Any, rank: int, size: int, limit: timedelta) -> Any:
    gloo: Any = distributed.ProcessGroupGloo
    options = gloo._Options()
    # Named, because gloo otherwise binds to what the host's name resolves to.
    options._devices = [gloo.create_device(hostname=LOOPBACK)]
    options._timeout = limit
    return gloo(store, rank, size, options)


def _nccl(store: Any, rank: int, size: int, limit: timedelta) -> Any:
    nccl: Any = distributed.ProcessGroupNCCL
    options = nccl.Options()
    options._timeout = limit
    return nccl(store, rank, size, options)
