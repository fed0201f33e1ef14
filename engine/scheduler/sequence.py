"""One sequence on its way through this instance."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.kvcache.prefix_cache import Lease
from engine.messages import Generate, TokenLogprob
from engine.model.sampling import SamplingState
from engine.observe.records import RoomRecord
from engine.scheduler.failures import Ending


class Phase(StrEnum):
    """Where a sequence is; each phase but the running ones is a queue with an age.

    unified:  waiting -> prompt -> decoding
    prefill:  room -> waiting -> prompt -> held
    decode:   room -> pages -> reading -> decoding     (retracted: -> waiting -> prompt -> decoding)
    ending:   the transfer was asked to end the room and has not answered yet
    """

    ROOM = "room"
    """Waits for the other leg."""
    WAITING = "waiting"
    """May be computed; waits for pages and for its turn."""
    PAGES = "pages"
    """Decode: prefill has the first chunk; waits for pages to read into."""
    READING = "reading"
    PROMPT = "prompt"
    DECODING = "decoding"
    HELD = "held"
    """Prefill: computed; decode has not committed yet."""
    ENDING = "ending"


@dataclass(slots=True, eq=False)
class Sequence:
    """Mutable state of one `Generate`; owned by the loop."""

    request: Generate
    record: RoomRecord
    sampling: SamplingState
    tokens: list[int]
    """Prompt and output so far."""
    arrival: int
    """Order of arrival; the smallest is the oldest."""
    arrived_at: float
    """Monotonic seconds."""
    deadline: float
    """Monotonic seconds."""
    phase: Phase
    phase_since: float
    computed: int = 0
    """Tokens whose KV is certainly right: computed here, or landed."""
    pages: list[int] = field(default_factory=list)
    """All its pages in order; the first may belong to the prefix cache (`lease`)."""
    lease: Lease = field(default_factory=Lease)
    ready_pages: int = 0
    """Prefill: prompt pages that the transfer was told of."""
    prompt_logprobs: list[TokenLogprob | None] = field(default_factory=list)
    ending: Ending | None = None
    """Set when the transfer was asked to end its room."""

    @property
    def rid(self) -> str:
        return self.request.rid

    @property
    def prompt_length(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def pending(self) -> int:
        """Tokens still to be computed before the next one can be sampled."""
        return len(self.tokens) - self.computed

    @property
    def cached(self) -> int:
        """Tokens whose pages are the prefix cache's."""
        return self.lease.tokens

    @property
    def own_pages(self) -> list[int]:
        """Return the pages that are not the prefix cache's."""
        return self.lease.own(self.pages)

    @property
    def reusable(self) -> int:
        """Tokens that may come from the prefix cache: never the last, whose logits are wanted, nor scored ones."""
        params = self.request.sampling
        most = len(self.tokens) - 1
        return most if params.prompt_logprobs is None else min(most, max(0, params.prompt_logprobs_start - 1))

    @property
    def scores_only(self) -> bool:
        """No token is wanted, only the prompt's logprobs."""
        return self.request.sampling.max_tokens == 0

    def enter(self, phase: Phase, now: float) -> None:
        """Change phase; its age starts again."""
        self.phase = phase
        self.phase_since = now
