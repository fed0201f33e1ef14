"""What the transfer counts, for `/metrics`. Written by one control thread, read by any thread."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from engine.observe.records import Sample


@dataclass(slots=True)
class TransferCounters:
    """Totals since the start; durations in seconds."""

    frames: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(kind, `in` | `out`)"""
    bad_frames: int = 0
    nacks: Counter[str] = field(default_factory=Counter)
    """Reason of the NACKs sent."""
    transfers: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(`landed` or the FailReason, peer's instance)"""
    bytes_read: Counter[str] = field(default_factory=Counter)
    """By peer; on prefill the bytes that were offered and then committed."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    fences: int = 0

    def samples(self) -> list[Sample]:
        """Return all totals. `list(...)` of a Counter's items is one step for other threads."""
        found = [
            Sample("control_bad_frames_total", self.bad_frames),
            Sample("transfer_fences_total", self.fences),
        ]
        for (kind, direction), count in list(self.frames.items()):
            found.append(Sample("control_frames_total", count, {"kind": kind, "direction": direction}))
        for reason, count in list(self.nacks.items()):
            found.append(Sample("control_nacks_total", count, {"reason": reason}))
        for (result, peer), count in list(self.transfers.items()):
            found.append(Sample("transfers_total", count, {"result": result, "peer": peer}))
        for peer, count in list(self.bytes_read.items()):
            found.append(Sample("transfer_bytes_total", count, {"peer": peer}))
        for peer, seconds in list(self.seconds.items()):
            found.append(Sample("transfer_seconds_total", seconds, {"peer": peer}))
        return found
