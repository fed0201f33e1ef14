"""How often a faster way to compute a model chooses float32's token, on SmolLM2.

    python -m benchmarks.agreement [--tokens 64]

float32 answers ten chat prompts greedily, past every end token. Each way then reads prompt and answer and says at each
place what it would have chosen: the same context for all, so that one early difference does not count for all that
follows. Where two ways are named the first one computes the prompt and its first token, as a prefill, and the second
goes on from its KV, as a decode. Printed: the share of equal choices, and the largest distance in logits (of float32)
of a choice from the best.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

from benchmarks.command import run
from benchmarks.load import model_path
from engine.frontend.tokenizer import load_tokenizer
from engine.model.checkpoint import open_checkpoint
from engine.model.decoder import ForwardPass
from engine.model.loading import load_model
from tests.engine.model.paged_run import PagedRun

QUESTIONS = (
    "What is the capital of France?",
    "Write a haiku about rain.",
    "Explain in two sentences why the sky is blue.",
    "List three prime numbers greater than 100.",
    "Translate to German: The cat sleeps on the sofa.",
    "How do I boil an egg?",
    "Fix this code: for i in range(10) print(i)",
    "Tell me a joke about a sailor.",
    "Who wrote Faust, and when?",
    "Plan a weekend in a small town by the sea.",
)
WAYS = {
    "torch bf16": ("off", "none"),
    "C++ bf16": ("auto", "none"),
    "C++ 4-bit groups": ("auto", "gguf"),
}
PAIRS = (
    *((name, name) for name in WAYS),
    ("C++ bf16", "C++ 4-bit groups"),
    ("C++ 4-bit groups", "C++ bf16"),
)
"""What prefill and decode compute by."""


def forced(
    prefill: ForwardPass, decode: ForwardPass, dtype: str, prompts: list[list[int]], answers: list[list[int]]
) -> Tensor:
    """Return the logits at every place of every answer, `[places, vocab]`."""
    logits = []
    for prompt, answer in zip(prompts, answers, strict=True):
        run = PagedRun(prefill, dtype, tokens=512)
        number = run.open()
        logits.append(run.prompt(number, prompt, chunk=256)[-1:])
        run.model = decode
        logits.append(run.prompt(number, answer[:-1], chunk=256))
    return torch.cat(logits)


def main() -> None:
    """Print one line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    torch.set_num_threads(1)
    path = model_path()
    tokenizer, checkpoint = load_tokenizer(path), open_checkpoint(path)
    chats = (f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" for text in QUESTIONS)
    prompts = [tokenizer.encode(text, add_special=True) for text in chats]
    exact = load_model(checkpoint, "float32")
    answers = PagedRun(exact, "float32", tokens=4096).greedy(prompts, options.tokens, chunk=256)
    reference = forced(exact, exact, "float32", prompts, answers)
    best = reference.argmax(-1)
    print(f"{len(best)} places; equal choices, largest distance from float32's best in its logits")
    models = {
        name: load_model(checkpoint, "bfloat16", cpu_step=cpu_step, quantization=quantization)
        for name, (cpu_step, quantization) in WAYS.items()
    }
    for prefill, decode in PAIRS:
        chosen = forced(models[prefill], models[decode], "bfloat16", prompts, answers).argmax(-1)
        distance = reference.amax(-1) - reference.gather(1, chosen[:, None])[:, 0]
        name = prefill if prefill == decode else f"{prefill}, {decode}"
        print(f"{name:28} {(chosen == best).float().mean():7.1%} {distance.max():6.2f}")


if __name__ == "__main__":
    run(main)
