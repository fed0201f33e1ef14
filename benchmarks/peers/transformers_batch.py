"""Transformers, prompts of one length as one batch, greedy with a KV cache; float32, its faster dtype on a CPU.

One JSON object a line in: {prompts: [[id]], tokens}; out: {times: [[seconds]]} of each token since the prompts came.
Arguments: the Hugging Face folder, threads.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM


@torch.inference_mode()
def generate(model: torch.nn.Module, prompts: list[list[int]], tokens: int) -> list[float]:
    """Return when each step's tokens were there."""
    started, ids, past, times = time.perf_counter(), torch.tensor(prompts), None, []
    for _ in range(tokens):
        result = model(ids, past_key_values=past, use_cache=True, logits_to_keep=1)
        past, ids = result.past_key_values, result.logits[:, -1:].argmax(-1)
        times.append(time.perf_counter() - started)
    return times


def main() -> None:
    """Answer lines until standard input ends."""
    folder, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        times = generate(model, asked["prompts"], asked["tokens"])
        print(json.dumps({"times": [times] * len(asked["prompts"])}), flush=True)


if __name__ == "__main__":
    main()
