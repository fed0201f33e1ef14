"""All sequences of this instance, by id and by phase."""

from __future__ import annotations

from engine.scheduler.sequence import Phase, Sequence

RUNNING = frozenset({Phase.PROMPT, Phase.DECODING})


class Queues:
    """Written by the loop only; lengths and ages may be read from any thread."""

    def __init__(self) -> None:
        self._by_rid: dict[str, Sequence] = {}

    def __len__(self) -> int:
        return len(self._by_rid)

    def __contains__(self, rid: str) -> bool:
        return rid in self._by_rid

    def add(self, sequence: Sequence) -> None:
        """Take a new sequence in; it is the youngest."""
        self._by_rid[sequence.rid] = sequence

    def get(self, rid: str) -> Sequence | None:
        """Return the sequence, or None when it has ended."""
        return self._by_rid.get(rid)

    def remove(self, sequence: Sequence) -> None:
        """Forget an ended sequence."""
        self._by_rid.pop(sequence.rid, None)

    def all(self) -> list[Sequence]:
        """Return every sequence, oldest first (a copy; safe from any thread)."""
        return list(self._by_rid.values())

    def in_phase(self, phase: Phase) -> list[Sequence]:
        """Return the sequences of a phase, oldest first. A retracted one keeps its place: the front."""
        return [sequence for sequence in self.all() if sequence.phase is phase]

    def running(self) -> list[Sequence]:
        """Return those that take part in steps, oldest first."""
        return [sequence for sequence in self.all() if sequence.phase in RUNNING]

    def named(self, name: str) -> list[Sequence]:
        """Return the sequence of a rid, or all of a request id."""
        exact = self._by_rid.get(name)
        if exact is not None:
            return [exact]
        return [sequence for sequence in self.all() if sequence.request.request_id == name]

    def lengths(self) -> dict[str, int]:
        """Return how many sequences each phase holds, zeros included."""
        counts = {phase.value: 0 for phase in Phase}
        for sequence in self.all():
            counts[sequence.phase] += 1
        return counts

    def oldest_ages(self, now: float) -> dict[str, float]:
        """Return seconds since the oldest of each phase entered it; 0 for an empty one."""
        ages = {phase.value: 0.0 for phase in Phase}
        for sequence in self.all():
            ages[sequence.phase] = max(ages[sequence.phase], now - sequence.phase_since)
        return ages
