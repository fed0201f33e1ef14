"""What every benchmark says of the machine, and where it finds the model."""

from __future__ import annotations

import os

import psutil
import torch

from tests.conftest import smollm2_candidate


def describe_machine() -> None:
    """Print cores and how busy others keep them: a figure means little without."""
    busy = psutil.cpu_percent(interval=1.0) / 100 * (os.cpu_count() or 1)
    cpu = torch.backends.cpu.get_cpu_capability()
    print(f"machine: {os.cpu_count()} cores ({cpu}), {busy:.2f} of them busy with other work before the start")


def model_path() -> str:
    """Return the path of SmolLM2's GGUF, or end with a message."""
    path = smollm2_candidate()
    if not path.is_file():
        raise SystemExit(f"SmolLM2 is not at {path}: run `make model`")
    return str(path)
