"""What a rank is told to compute: everything the model runner knows of the scheduler (invariant 6).

Rank 0 alone makes plans; every rank executes the same ones in the same order. So which collectives a rank enters, and
with which shapes, follows from the plan and from nothing that the rank knows itself.
"""

from __future__ import annotations

import msgspec

from engine.errors import EngineError
from engine.messages import SamplingParams

COMING = -1
"""In place of a token that the step before samples. Rank 0's runner puts it in, before any other rank sees the plan."""


class StepGap(EngineError):
    """A plan was lost or came twice: this rank's KV may be another one than its peers'."""


class PromptScore(msgspec.Struct, frozen=True, array_like=True):
    """Logprobs of prompt tokens that are wanted."""

    first: int
    """Position of the first row to score; the others follow it."""
    targets: list[int]
    """The prompt tokens that follow the scored rows."""
    alternatives: int


class SamplingStart(msgspec.Struct, frozen=True, array_like=True):
    """What the choice of a sequence's tokens depends on; told once, from then on the runner keeps it up."""

    params: SamplingParams
    prompt_ids: list[int]
    output_ids: list[int]


class SequenceStep(msgspec.Struct, frozen=True, array_like=True):
    """One sequence's part of a step."""

    rid: str
    start: int
    """Position of the first new token."""
    tokens: list[int]
    """The new tokens; `COMING` where the step before decides."""
    pages: list[int]
    """Pool pages of all tokens up to the last new one, in order."""
    samples: bool
    """The token after the last new one is wanted."""
    score: PromptScore | None = None
    sampling: SamplingStart | None = None
    """With the first step that samples."""

    @property
    def end(self) -> int:
        """Return how many of the sequence's tokens have their KV in the pool after this step."""
        return self.start + len(self.tokens)


class StepPlan(msgspec.Struct, frozen=True, array_like=True, tag="step"):
    """One step. The first `decodes` sequences have one new token each; prompt chunks follow."""

    number: int
    """Counts from 1 without gaps."""
    decodes: int
    sequences: list[SequenceStep]
    ended: list[str]
    """Sequences of which nothing more will come."""

    @property
    def tokens(self) -> int:
        """Return the rows of the forward pass."""
        return sum(len(each.tokens) for each in self.sequences)


def check_number(expected: int, number: int) -> None:
    """Raise StepGap unless the plan is the next one."""
    if number != expected:
        raise StepGap(
            f"plan {number} came where plan {expected} was due: a plan was lost or came twice, and this rank's KV may "
            "differ from its peers'; the instance has to be restarted"
        )
