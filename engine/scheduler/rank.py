"""One rank of an instance: its part of the model, its pool, its flight recorder, and its way with a plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from engine.clock import Clock
from engine.config import EngineConfig, Role
from engine.errors import ConfigError
from engine.frontend.tokenizer import load_tokenizer
from engine.kernels.device import memory_bytes, rank_device
from engine.kvcache.pool import KVLayout, KVPool
from engine.model.checkpoint import open_checkpoint
from engine.model.config import ModelConfig
from engine.model.grammar import GrammarCompiler, token_table
from engine.model.loading import load_model
from engine.model.stored import Checkpoint
from engine.observe.flight import FlightRecorder, rank_file
from engine.parallel.deal import deal
from engine.parallel.group import join_group
from engine.scheduler.rank_links import OtherRanks
from engine.scheduler.runner import Runner, StepResult
from engine.scheduler.step_plan import StepPlan
from engine.transfer.data.rank_link import InstanceRanks

if TYPE_CHECKING:
    from llguidance import LLTokenizer

ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}
COLLECTIVE_LIMIT_S = 3600.0
"""A step that hangs is ended by the stuck clock, and a rank that dies by the instance: this is for neither."""


@dataclass(frozen=True, slots=True)
class Rank:
    """What each rank has. `compute_plan` is for the thread that computes.

    One method for all ranks, so that their stacks differ only where they stand at different points.
    """

    number: int
    checkpoint: Checkpoint
    pool: KVPool
    runner: Runner
    flight: FlightRecorder | None
    clock: Clock

    others: OtherRanks | None
    """On rank 0."""

    def compute_plan(self, plan: StepPlan) -> StepResult:
        """Compute a plan; blocks for the step's duration. Raises StepGap, RankLost.

        Rank 0 puts in the tokens that were coming, hands the plan on, and returns when the last rank is done.
        """
        if self.others is not None:
            plan = self.runner.completed(plan)
            self.others.send(plan)
        if self.flight is not None:
            self.flight.step_begins(plan.number, len(plan.sequences), plan.tokens)
        started = self.clock.monotonic()
        result = self.runner.step(plan)
        result.seconds = self.clock.monotonic() - started
        if self.flight is not None:
            self.flight.step_ends(plan.number, len(plan.sequences), result.seconds)
        if self.others is not None:
            self.others.wait_done(plan.number)
        return result


def load_rank(config: EngineConfig, number: int, run_dir: str, clock: Clock, others: OtherRanks | None = None) -> Rank:
    """Meet the other ranks, then load this one's part of the model. Rank 0 is given its links to the `others`.

    Raises ConfigError, CheckpointError, RankLost.
    """
    device = rank_device(config.device, number)
    group = join_group(number, config.tp, Path(run_dir) / "ranks", COLLECTIVE_LIMIT_S, device)
    checkpoint = open_checkpoint(config.model)
    try:
        model = load_model(checkpoint, config.dtype, device, group, config.cpu_step, config.quantization)
    except torch.OutOfMemoryError as error:
        raise ConfigError(f"{config.model} does not fit into {device}: {error}; take more --tp ranks") from error
    layout = kv_layout(config, checkpoint.config, len(model.share.kv_heads))
    if layout.size_bytes > (memory := memory_bytes(device)):
        where = "this machine" if device.type == "cpu" else f"{device}"
        needed = f"a pool of {config.kv_tokens} tokens takes {layout.size_bytes / 1e9:.1f} GB"
        raise ConfigError(f"--kv-tokens: {needed}, and {where} has {memory / 1e9:.1f} GB for it; lower it")
    pool = KVPool(layout, device)
    grammars = GrammarCompiler(lambda: _token_table(config.model, checkpoint.config))
    runner = Runner(model, pool, checkpoint.config.eos_ids, grammars, number)
    return Rank(number, checkpoint, pool, runner, _flight_recorder(config, number, clock), clock, others)


def kv_layout(config: EngineConfig, model: ModelConfig, kv_heads: int) -> KVLayout:
    """Return the shape of a rank's pool, which holds `kv_heads` of the model's."""
    return KVLayout(
        layers=model.layers,
        kv_heads=kv_heads,
        # One more than the ledger knows: the page of the canary, see `engine.transfer.control.canary`.
        pages=config.pages + (config.role is not Role.UNIFIED),
        page_size=config.page_size,
        head_dim=model.head_dim,
        dtype=config.dtype,
        item_bytes=ITEM_BYTES[config.dtype],
    )


def instance_ranks(config: EngineConfig, model: ModelConfig, run_dir: str) -> InstanceRanks:
    """Return the KV heads of each rank, as the transfer needs them."""
    return InstanceRanks(tuple(share.kv_heads for share in deal(model, config.tp)), run_dir)


def _flight_recorder(config: EngineConfig, number: int, clock: Clock) -> FlightRecorder | None:
    if config.flight_file is None:
        return None
    path = rank_file(Path(config.flight_file), number)
    return FlightRecorder(path, clock, config.instance, config.incarnation, number)


def _token_table(path: str, model: ModelConfig) -> LLTokenizer:
    tokenizer = load_tokenizer(path)
    return token_table(tokenizer.to_json(), max(model.vocab, tokenizer.size), model.eos_ids)
