"""One sequence on its way through this instance."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.kvcache.prefix_cache import Lease
from engine.messages import Generate, TokenLogprob
from engine.model.end_rule import EndRule
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
    ends: EndRule
    token_limit: int
    """Output tokens that are sampled here; a prefill samples one for each room."""
    tokens: list[int]
    """Prompt and output so far, as far as the loop knows them."""
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
    planned: int = 0
    """Tokens whose KV is there when the steps that have been handed out are done; never less than `computed`."""
    coming: int = 0
    """Tokens that these steps sample, and that the loop does not know yet."""
    last_step: int = 0
    """Number of the last step that it has a part in: until that is done, its pages may be written to."""
    is_begun: bool = False
    """The runner keeps a sampling state for it."""
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
    def output_ids(self) -> list[int]:
        """Return the output tokens that the loop knows."""
        return self.tokens[self.prompt_length :]

    @property
    def length(self) -> int:
        """Tokens, those included that are coming."""
        return len(self.tokens) + self.coming

    @property
    def pending(self) -> int:
        """Tokens that are in no step yet, and must be before another one can be sampled."""
        return self.length - self.planned

    @property
    def is_decoding(self) -> bool:
        """Its prompt is computed, or will be by the steps that are handed out."""
        return self.phase is Phase.DECODING or (self.phase is Phase.PROMPT and self.coming > 0)

    @property
    def wants_more(self) -> bool:
        """The limit leaves it a token beyond those that are coming."""
        return self.length - self.prompt_length < self.token_limit

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
