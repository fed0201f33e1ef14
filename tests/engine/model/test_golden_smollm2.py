"""SmolLM2 in float32: greedy output equals transformers' token for token, on the same weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engine.frontend.tokenizer import load_tokenizer
from engine.model.checkpoint import Checkpoint, open_checkpoint
from engine.model.decoder import ForwardPass
from engine.model.loading import load_model
from tests.engine.model.paged_run import PagedRun

TEXT = (
    "The harbour lay quiet that morning. Two fishing boats had come in before dawn, and their crews were "
    "mending nets on the quay while the gulls fought over what was left in the crates. An old man, who had "
    "not been to sea for eleven years, told anybody who would listen that the weather would turn by noon. "
    "Nobody listened. "
)
CHAT = (
    "What is the capital of France?",
    "Write a haiku about rain.",
    "Explain in two sentences why the sky is blue.",
    "List three prime numbers greater than 100.",
    "Translate to German: The cat sleeps on the sofa.",
    "¿Cuál es la diferencia entre un río y un arroyo?",
    "Fix this code: for i in range(10) print(i)",
    "Tell me a joke about a 🐙 and a 🐢.",
    "",
)
RAW = (
    "Once upon a time",
    "def fibonacci(n):\n    ",
    "The three laws of thermodynamics are:\n1.",
    "2 + 2 = 4, 3 + 3 = 6, 4 + 4 =",
    "北京是",
    '{"name": "Ada", "born": 1815, "field": "',
    "A",
    "\n\n\n",
    TEXT,
    TEXT * 4,
    TEXT * 9,
    TEXT * 29,
)
TOKENS = 12


@pytest.fixture(scope="module")
def checkpoint(smollm2_path: Path) -> Checkpoint:
    """The real model's file."""
    return open_checkpoint(smollm2_path)


@pytest.fixture(scope="module")
def model(checkpoint: Checkpoint) -> ForwardPass:
    """Our model in float32."""
    return load_model(checkpoint, "float32")


@pytest.fixture(scope="module")
def reference(checkpoint: Checkpoint) -> LlamaForCausalLM:
    """Transformers' model with the same dequantised weights; its numbers are written out, not read from
    ours.
    """
    config = LlamaConfig(
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=49152,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope_theta=100000.0,
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        reference = LlamaForCausalLM(config)
    tensors = dict(checkpoint.tensors())
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    reference = reference.to_empty(device="cpu")
    reference.load_state_dict(tensors, strict=True)
    reference.model.rotary_emb = type(reference.model.rotary_emb)(config)
    return reference.eval()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The same thread count on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def prompts(path: Path) -> list[list[int]]:
    """Return all prompts as token ids; the longest has about 2,000."""
    tokenizer = load_tokenizer(path)
    chats = [f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" for text in CHAT]
    return [tokenizer.encode(text, add_special=True) for text in (*chats, *RAW)]


def check_greedy(
    model: ForwardPass, reference: LlamaForCausalLM, ids: list[list[int]], tokens: int, chunk: int
) -> None:
    """Compare by induction: the reference, given prompt and our answer, must choose each of our tokens."""
    run = PagedRun(model, "float32", tokens=sum(map(len, ids)) + len(ids) * (tokens + 16))
    for prompt, answer in zip(ids, run.greedy(ids, tokens, chunk), strict=True):
        with torch.inference_mode():
            logits = reference(torch.tensor([prompt + answer[:-1]]), logits_to_keep=tokens).logits[0]
        assert logits.argmax(-1).tolist() == answer, f"prompt of {len(prompt)} tokens"


def test_short_prompts(model: ForwardPass, reference: LlamaForCausalLM, smollm2_path: Path) -> None:
    """Four prompts, chat and raw, decoded together."""
    everything = prompts(smollm2_path)
    check_greedy(model, reference, [everything[0], everything[5], everything[9], everything[10]], 8, chunk=32)


@pytest.mark.slow
def test_all_prompts(model: ForwardPass, reference: LlamaForCausalLM, smollm2_path: Path) -> None:
    """22 prompts from 1 to 2,000 tokens, in chunks of 256, decoded in one batch."""
    everything = prompts(smollm2_path)
    assert len(everything) >= 20
    assert max(map(len, everything)) >= 2000
    check_greedy(model, reference, everything, TOKENS, chunk=256)


@pytest.mark.parametrize(("cpu_step", "quantization"), [("auto", "none"), ("auto", "gguf"), ("off", "none")])
def test_bf16_answers_pass_their_own_score(
    checkpoint: Checkpoint, smollm2_path: Path, cpu_step: str, quantization: str
) -> None:
    """In bf16 every token, decoded in a batch, is within 0.25 logit of the best when scored in one pass."""
    model = load_model(checkpoint, "bfloat16", cpu_step=cpu_step, quantization=quantization)
    ids = prompts(smollm2_path)[:14]
    answers = PagedRun(model, "bfloat16", tokens=2048).greedy(ids, 16, chunk=32)
    for prompt, answer in zip(ids, answers, strict=True):
        run = PagedRun(model, "bfloat16", tokens=512)
        logits = run.prompt(run.open(), prompt + answer[:-1], chunk=512)[-len(answer) :]
        own = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
        assert (logits.amax(-1) - own).max() <= 0.25


def test_it_answers(model: ForwardPass, smollm2_path: Path) -> None:
    """The real model with the real tokenizer knows the capital of France."""
    tokenizer = load_tokenizer(smollm2_path)
    answer = PagedRun(model, "float32", tokens=256).greedy(prompts(smollm2_path)[:1], 10, chunk=64)[0]
    assert "Paris" in tokenizer.decode(answer, skip_special=True)
