"""One sequence on its way out: token ids from the scheduler become text that a client may see."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass

from engine.frontend.detokenizer import Detokenizer
from engine.frontend.stops import StopMatcher
from engine.frontend.tokenizer import Tokenizer
from engine.messages import Delta, FinishReason, TokenLogprob


@dataclass(frozen=True, slots=True)
class Piece:
    """What one delta adds to the answer of sequence `index`; the last one carries `finish`."""

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprob] | None = None
    """As many as `token_ids`, when asked."""
    prompt_logprobs: list[TokenLogprob | None] | None = None
    cached_tokens: int = 0
    finish: FinishReason | None = None
    matched: str | int | None = None
    """The stop string or the token that ended it."""

    @property
    def text_tokens(self) -> int:
        """Return how many of `token_ids` are part of the answer: not the token that ended it."""
        return len(self.token_ids) - isinstance(self.matched, int)


class SequenceText:
    """Detokenises and looks for stop strings. Owner of one sequence's text state."""

    def __init__(self, tokenizer: Tokenizer, index: int, stops: Many[str], min_tokens: int = 0) -> None:
        self._index = index
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopMatcher(stops)
        self._min_tokens = min_tokens
        self._tokens = 0
        self.finished = False

    def take(self, delta: Delta) -> Piece:
        """Return what `delta` adds. After a stop string the rest of the delta is dropped."""
        text, taken = "", 0
        for position, token_id in enumerate(delta.token_ids):
            taken += 1
            last = position == len(delta.token_ids) - 1
            if not (last and delta.stop_token_id is not None):
                text += self._push(token_id)
            if self._stops.matched is not None:
                return self._piece(delta, taken, text, FinishReason.STOP, self._stops.matched)
        if delta.finish is not None:
            text += self._stops.push(self._detokenizer.flush())
            text += self._stops.flush()
        if self._stops.matched is not None:
            return self._piece(delta, taken, text, FinishReason.STOP, self._stops.matched)
        return self._piece(delta, taken, text, delta.finish, delta.stop_token_id)

    def _push(self, token_id: int) -> str:
        self._tokens += 1
        text = self._detokenizer.push([token_id])
        # A stop string counts only beyond the tokens that the client insists on.
        return text if self._tokens <= self._min_tokens else self._stops.push(text)

    def _piece(
        self, delta: Delta, taken: int, text: str, finish: FinishReason | None, matched: str | int | None
    ) -> Piece:
        self.finished = finish is not None
        return Piece(
            index=self._index,
            text=text,
            token_ids=delta.token_ids[:taken],
            logprobs=None if delta.logprobs is None else delta.logprobs[:taken],
            prompt_logprobs=delta.prompt_logprobs,
            cached_tokens=delta.cached_tokens,
            finish=finish,
            matched=matched,
        )
