"""Starting one instance: sockets first, then tokenizer, scheduler process, HTTP servers.

The API process never imports torch. The scheduler dies with it (PDEATHSIG, set in the scheduler).
"""

from __future__ import annotations

import asyncio
import contextlib
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
from engine.ports import listen
from engine.run_folder import run_folder

SCHEDULER = (sys.executable, "-m", "engine.scheduler")


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
    process = await _start_scheduler(config, run_dir, scheduler)
    service.scheduler_pid = process.pid
    apps = {"http": make_app(service)} | ({"registry": make_registry(service)} if "registry" in listeners else {})
    instance = Instance(service, process, [(app, listeners[name]) for name, app in apps.items()])
    try:
        return await instance.run()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        client.close()


def _special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    """Return what chat templates print by name."""
    tokens = {}
    if tokenizer.bos_id is not None:
        tokens["bos_token"] = tokenizer.token_text(tokenizer.bos_id)
    if tokenizer.eos_ids:
        tokens["eos_token"] = tokenizer.token_text(tokenizer.eos_ids[0])
    return tokens


async def _start_scheduler(config: EngineConfig, run_dir: Path, command: Sequence[str]) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *command,
        "--run-dir",
        str(run_dir),
        stdin=asyncio.subprocess.PIPE,
        # Its own group: a Ctrl-C, or SIGTERM to the group, must reach it as Drain, once the door is closed.
        process_group=0,
    )
    assert process.stdin is not None
    # A scheduler that dies at once is noticed by its exit, not by this pipe.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(msgspec.json.encode(config))
        await process.stdin.drain()
    process.stdin.close()
    return process
