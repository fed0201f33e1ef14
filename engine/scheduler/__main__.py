"""One rank's process: `python -m engine.scheduler --run-dir DIR --rank N`, configuration as JSON on stdin."""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import signal
import sys

import msgspec
import torch
import zmq

from engine.config import EngineConfig
from engine.errors import CheckpointError, ConfigError, EngineError
from engine.scheduler.follower import Follower
from engine.scheduler.instance import Instance
from engine.scheduler.rank_links import Context

PR_SET_PDEATHSIG = 1


def main() -> int:
    """Serve until drained. 0: drained; 2: bad configuration or model; 1: a fault, with its reason or traceback."""
    parser = argparse.ArgumentParser(prog="engine.scheduler")
    parser.add_argument("--run-dir", required=True, help="folder of the ipc sockets")
    parser.add_argument("--rank", type=int, default=0, help="0 decides what all ranks compute")
    parser.add_argument("--parent", type=int, required=True, help="pid of the API process, without which it ends")
    given = parser.parse_args()
    _die_with_parent(given.parent)
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=EngineConfig)
    who = "scheduler" if config.tp == 1 else f"scheduler TP{given.rank}"
    logging.basicConfig(
        level=config.log_level.upper(),
        format=f"%(asctime)s.%(msecs)03d %(levelname)s [{config.instance} {who}] %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
    torch.set_num_threads(config.threads)
    torch.set_grad_enabled(False)
    try:
        with zmq.Context() as context:
            if given.rank == 0:
                _lead(config, context, given.run_dir)
            else:
                _follow(config, context, given.run_dir, given.rank)
    except EngineError as error:
        logging.getLogger("engine.scheduler").error("%s", error)
        return 2 if isinstance(error, ConfigError | CheckpointError) else 1
    return 0


def _lead(config: EngineConfig, context: Context, run_dir: str) -> None:
    instance = Instance(config, context, run_dir)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: instance.drain())
    instance.serve()


def _follow(config: EngineConfig, context: Context, run_dir: str, rank: int) -> None:
    # A signal to the whole group begins a drain, in which rank 0 still needs this one.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    Follower(config, context, run_dir, rank).serve()


def _die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the API process ends, however it ends.

    That may have been in the seconds in which Python imported torch: who is our parent by now does not tell.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit("the API process has gone already")


if __name__ == "__main__":
    sys.exit(main())
