"""The scheduler process: `python -m engine.scheduler --run-dir DIR`, configuration as JSON on stdin."""

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
from engine.errors import EngineError
from engine.scheduler.instance import Instance

PR_SET_PDEATHSIG = 1


def main() -> int:
    """Serve until drained. 0: drained; 2: bad configuration or model; anything else: a bug, with its traceback."""
    parser = argparse.ArgumentParser(prog="engine.scheduler")
    parser.add_argument("--run-dir", required=True, help="folder of the ipc sockets")
    run_dir = parser.parse_args().run_dir
    parent = os.getppid()
    _die_with_parent(parent)
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=EngineConfig)
    logging.basicConfig(
        level=config.log_level.upper(),
        format=f"%(asctime)s.%(msecs)03d %(levelname)s [{config.instance} scheduler] %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
    torch.set_num_threads(config.threads)
    torch.set_grad_enabled(False)
    try:
        with zmq.Context() as context:
            instance = Instance(config, context, run_dir)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: instance.drain())
            instance.serve()
    except EngineError as error:
        logging.getLogger("engine.scheduler").error("%s", error)
        return 2
    return 0


def _die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the API process ends, however it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit("the API process has gone already")


if __name__ == "__main__":
    sys.exit(main())
