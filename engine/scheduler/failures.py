"""How a sequence ends early, and what its client is told."""

from __future__ import annotations

from dataclasses import dataclass

from engine.transfer.interface import FailReason

STATUS = {
    FailReason.PAIRING_TIMEOUT: 503,
    FailReason.PEER_GONE: 502,
    FailReason.PEER_SILENT: 502,
    FailReason.PEER_STUCK: 502,
    FailReason.PEER_REFUSED: 503,
    FailReason.CONTRACT_MISMATCH: 502,
    FailReason.PROMPT_MISMATCH: 502,
    FailReason.CHECKSUM_MISMATCH: 502,
    FailReason.READ_FAILED: 502,
    FailReason.UNREACHABLE: 503,
    FailReason.GONE: 502,
    FailReason.ABORTED: 500,
    FailReason.DRAINING: 503,
}
"""Only statuses that a router passes on. 503: the same request may do better elsewhere or later."""


@dataclass(frozen=True, slots=True)
class Ending:
    """`satisfied`: the client has all it wanted (a stop string), so nothing failed."""

    status: int
    code: str
    message: str
    satisfied: bool = False


def ending_of(reason: FailReason, detail: str) -> Ending:
    """Translate a room's failure."""
    return Ending(STATUS[reason], reason.value, f"KV transfer failed ({reason.value}): {detail}")


def aborted(reason: str, satisfied: bool) -> Ending:
    """The client left, an operator aborted it, or a stop string was found."""
    return Ending(500, "stop" if satisfied else "aborted", reason, satisfied)


def past_deadline(seconds: float) -> Ending:
    """The request's own deadline has passed."""
    return Ending(503, "deadline", f"not finished within its deadline of {seconds:g} s")


def queue_full(limit: int) -> Ending:
    """Admission control."""
    return Ending(503, "queue_full", f"{limit} requests are waiting already; try again later")


DRAINING = Ending(503, "draining", "this instance is draining and takes no new requests")


def broken_grammar(problem: str) -> Ending:
    """The grammar became too complex in the middle of the answer, or the API let a wrong one through."""
    return Ending(
        500, "grammar_failed", f"the answer cannot follow its grammar any more: {problem}; simplify the schema"
    )


BROKEN_LOGITS = Ending(
    500, "broken_logits", "the model computed NaN or infinity for this request; its weights or the dtype are unfit"
)

NO_TOKEN_LEFT = Ending(
    400,
    "no_token_left",
    "no token may come next: stop_token_ids with min_tokens, logit_bias, the penalties or the grammar bar every one",
)
