"""How the last canary of a peer ended, see `engine.transfer.canary`."""

from __future__ import annotations

from dataclasses import dataclass

from engine.observe.records import PeerTransfer

STALE_S = 30.0


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
