"""Log-probabilities as the model gave them: before temperature, penalties, filters (as OpenAI and vLLM)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.messages import TokenLogprob


@torch.inference_mode()
def token_logprobs(logits: Tensor, token_ids: Sequence[int], alternatives: int) -> list[TokenLogprob]:
    """Return the logprob of one token a row, with the row's best `alternatives`, best first.

    `logits` is float32 `[rows, vocab]`; the memory of one more such tensor is used for a moment.
    """
    highest = logits.amax(dim=-1, keepdim=True)
    spread = (logits - highest).exp_().sum(dim=-1, keepdim=True).log_()
    chosen = torch.tensor(token_ids, dtype=torch.int64, device=logits.device)[:, None]
    own = (logits.gather(1, chosen) - highest - spread)[:, 0].tolist()
    best, ids = logits.topk(min(alternatives, logits.shape[1]), dim=-1)
    tops = zip(ids.tolist(), (best - highest - spread).tolist(), strict=True)
    return [
        TokenLogprob(token_id, logprob, list(zip(*top, strict=True)))
        for token_id, logprob, top in zip(token_ids, own, tops, strict=True)
    ]


def prompt_logprobs(logits: Tensor, following_ids: Sequence[int], alternatives: int) -> list[TokenLogprob]:
    """Return the logprobs of the prompt tokens that follow the rows: row i predicts `following_ids[i]`."""
    return token_logprobs(logits, following_ids, alternatives)
