"""The canary: is the data plane alive, told by a READ of one page with fresh bytes, every 10 s for each peer.

Decode sends CANARY with a nonce. Every rank of prefill fills its canary page with it, then CANARY_READY comes. Each
rank of decode READs the page into its own, by the threads, agents, descriptors and checksums that rooms use; the sums
are those that decode itself works out for the nonce. Rank 0 also compares every byte. CANARY_READ tells prefill. The
pages lie in the registered pools, behind those of the ledger. One canary at a time on each side: a decode whose CANARY
comes while another one has the page asks again. Its cost is one page, 1-3 ms each 10 s.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.observe.records import PeerTransfer

STALE_S = 30.0
LIMIT_S = 5.0
"""A READ that has not ended by then has failed; it is waited for all the same before the next."""
ASK_EVERY_S = 1.0
ANSWER_LIMIT_S = LIMIT_S + 2 * ASK_EVERY_S
"""A prefill that has not answered by then does not. A decode that dies with the page keeps it for LIMIT_S."""
NONCE_BYTES = 16
OTHER_BYTES = "the page that was read holds other bytes than prefill wrote"


@dataclass(slots=True)
class CanaryResult:
    """How the last canary of a peer ended; `ended_at` is monotonic, None before the first."""

    ok: bool = False
    ended_at: float | None = None
    seconds: float = 0.0
    detail: str = "no canary has ended yet"

    def shown(self, peer: str, incarnation: str, now: float, refused: str | None) -> PeerTransfer:
        """Return the row of `/health/transfer`."""
        age = None if self.ended_at is None else now - self.ended_at
        state = "ok" if self.ok else "failing"
        detail = self.detail
        if refused is not None:
            state, detail = "refused", refused
        elif age is None:
            state = "waiting"
        elif age > STALE_S:
            state, detail = "stale", f"no canary has ended for {age:.0f} s"
        return PeerTransfer(
            peer=peer,
            incarnation=incarnation,
            state=state,
            took_ms=round(self.seconds * 1000, 3),
            age_s=None if age is None else round(age, 3),
            detail=detail,
        )
