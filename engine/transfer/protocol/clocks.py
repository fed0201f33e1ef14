"""The clocks of invariant 1, as pure functions of times: pairing, silence, stuck. All in seconds.

Pairing is a deadline of a room, set when it opens. Silence and stuck belong to a peer. Bytes and queue
positions are no clock: a decode with a full pool is slow, not dead.
"""

from __future__ import annotations

from dataclasses import dataclass

OWN_PAUSE_S = 1.0
"""A gap between two ticks that shows that this process did not run; what peers sent is still to be read."""
HEARTBEAT_S = 0.5
RESEND_S = 0.5
STUCK_STEPS = 10.0


@dataclass(slots=True)
class PeerPulse:
    """When a peer was last heard and when its scheduler loop last moved."""

    heard_at: float
    loop_tick: int = -1
    moved_at: float = 0.0
    longest_step_s: float = 0.0

    def hear(self, now: float) -> None:
        """Note that a frame came."""
        self.heard_at = now

    def beat(self, now: float, loop_tick: int, longest_step_s: float) -> None:
        """Note where the peer's loop is."""
        if loop_tick != self.loop_tick:
            self.loop_tick = loop_tick
            self.moved_at = now
        self.longest_step_s = longest_step_s

    def forgive(self, seconds: float) -> None:
        """Do not count a time in which this process itself did not run (stopped, starved)."""
        self.heard_at += seconds
        self.moved_at += seconds

    def is_silent(self, now: float, limit_s: float) -> bool:
        """Say whether no frame came for longer than the silence clock allows."""
        return now - self.heard_at > limit_s

    def is_stuck(self, now: float, limit_s: float) -> bool:
        """Say whether heartbeats show a loop that does not move: unmoved for max(limit, 10 longest steps)."""
        if self.loop_tick < 0:
            return False
        return now - self.moved_at > max(limit_s, STUCK_STEPS * self.longest_step_s)
