"""The request legs this instance has and had: live records, and the ended ones of the last minute."""

from __future__ import annotations

import threading
from collections import deque

from engine.clock import Clock
from engine.observe.flight import FlightRecorder
from engine.observe.records import RoomRecord, Stage

KEEP_S = 60.0
KEEP_MOST = 4096


class Journal:
    """Owner of all `RoomRecord`s. Safe to read from any thread while others write."""

    def __init__(self, clock: Clock, flight: FlightRecorder | None = None) -> None:
        self.flight = flight
        self._clock = clock
        self._live: dict[str, RoomRecord] = {}
        self._ended: deque[tuple[float, RoomRecord]] = deque(maxlen=KEEP_MOST)
        self._lock = threading.Lock()

    def open(self, record: RoomRecord, received_at: float) -> RoomRecord:
        """Add a leg; `received_at` (Unix time) becomes its first stage."""
        record.at = {Stage.RECEIVED: received_at}
        with self._lock:
            self._live[record.rid] = record
        return record

    def mark(self, record: RoomRecord, stage: Stage) -> None:
        """Stamp a stage once; later stamps of the same stage are ignored."""
        record.at.setdefault(stage, self._clock.wall())

    def close(self, record: RoomRecord, state: str, reason: str | None = None) -> None:
        """Move a leg to the ended ones. A second close changes nothing."""
        with self._lock:
            if self._live.pop(record.rid, None) is None:
                return
            record.state = state
            record.reason = record.reason or reason
            self._ended.append((self._clock.monotonic(), record))

    def live(self) -> list[RoomRecord]:
        """Return the legs that have not ended."""
        with self._lock:
            return list(self._live.values())

    def recent(self) -> list[RoomRecord]:
        """Return the legs that ended within the last 60 s, oldest first."""
        horizon = self._clock.monotonic() - KEEP_S
        with self._lock:
            while self._ended and self._ended[0][0] < horizon:
                self._ended.popleft()
            return [record for _, record in self._ended]
