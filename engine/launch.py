"""Starting one instance: sockets first, then tokenizer, scheduler processes, HTTP servers. Never imports torch."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from engine.api.access import check_exposure
from engine.api.app import make_app
from engine.api.registry import make_registry
from engine.api.service import Service
from engine.clock import SystemClock
from engine.config import EngineConfig, Role
from engine.frontend.chat_template import compile_template
from engine.frontend.scheduler_client import SchedulerClient
from engine.frontend.tokenizer import Tokenizer, load_tokenizer
from engine.instance import Instance
from engine.model.checkpoint import open_checkpoint
from engine.parallel.deal import deal
from engine.ports import listen
from engine.rank_processes import SCHEDULER, RankProcesses
from engine.run_folder import run_folder


def launch(config: EngineConfig, scheduler: Sequence[str] = SCHEDULER) -> int:
    """Run an instance until it ends; return the exit code.

    Raises ConfigError or CheckpointError before anything was started.
    """
    logging.basicConfig(
        level=config.log_level.upper(),
        format=f"%(asctime)s.%(msecs)03d %(levelname)s [{config.instance} api] %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
    check_exposure(config)
    _check_ranks(config)
    with ExitStack() as stack:
        listeners = {"http": stack.enter_context(listen(config.host, config.port, "--port"))}
        if config.role is Role.PREFILL:
            registry = listen(config.host, config.bootstrap_port, "--bootstrap-port")
            listeners["registry"] = stack.enter_context(registry)
        tokenizer = load_tokenizer(config.model)
        # Until `Instance` takes over, a SIGTERM unwinds the stack like any error.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        run_dir = stack.enter_context(run_folder())
        if config.flight_file is None:
            config = msgspec.structs.replace(config, flight_file=str(run_dir / "flight"))
        return asyncio.run(_run(config, tokenizer, run_dir, listeners, scheduler))


def _check_ranks(config: EngineConfig) -> None:
    """Raise ConfigError when the model cannot be dealt to so many ranks; before each of them would find out."""
    if config.tp > 1:
        deal(open_checkpoint(config.model).config, config.tp)


async def _run(
    config: EngineConfig,
    tokenizer: Tokenizer,
    run_dir: Path,
    listeners: dict[str, socket.socket],
    scheduler: Sequence[str],
) -> int:
    clock = SystemClock()
    client = SchedulerClient(run_dir, config.max_running + config.max_queued)
    template = compile_template(tokenizer.chat_template, _special_tokens(tokenizer))
    service = Service(config, tokenizer, template, client, clock, started_at=clock.wall())
    ranks = await RankProcesses.start(config, run_dir, scheduler)
    service.ranks = ranks
    apps = {"http": make_app(service)} | ({"registry": make_registry(service)} if "registry" in listeners else {})
    instance = Instance(service, ranks, [(app, listeners[name]) for name, app in apps.items()])
    try:
        return await instance.run()
    finally:
        await ranks.kill()
        client.close()


def _special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    """Return what chat templates print by name."""
    tokens = {}
    if tokenizer.bos_id is not None:
        tokens["bos_token"] = tokenizer.token_text(tokenizer.bos_id)
    if tokenizer.eos_ids:
        tokens["eos_token"] = tokenizer.token_text(tokenizer.eos_ids[0])
    return tokens
