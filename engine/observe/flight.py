"""Writes the flight recorder: every room transition and every step, 2 us each, into a memory-mapped ring.

The kernel keeps the pages when the process dies, however it dies; a machine that loses power loses them.
"""

from __future__ import annotations

import mmap
import os
from itertools import count
from pathlib import Path

from engine.clock import Clock
from engine.errors import ConfigError
from engine.observe.flight_format import HEADER_BYTES, RECORD_BYTES, pack_header, pack_record

SLOTS = 16384
"""2 MiB; ten minutes of a loop with 25 steps a second."""
START, STEP_BEGIN, STEP_END, ROOM, NOTE = range(1, 6)


def rank_file(path: Path, rank: int) -> Path:
    """Return where a rank of the instance with this `--flight-file` writes: rank 0 there, rank 1 to `NAME.rank1`."""
    return path if rank == 0 else path.with_name(f"{path.name}.rank{rank}")


class FlightRecorder:
    """Owner of the file. Any thread may write: taking a number and copying a record are one step each."""

    def __init__(
        self, path: Path, clock: Clock, instance: str, incarnation: str, rank: int = 0, slots: int = SLOTS
    ) -> None:
        """Make the file, 0600; one that is there is kept as `.previous`. Raises ConfigError when that fails."""
        self._clock = clock
        self._slots = slots
        self._numbers = count()
        size = HEADER_BYTES + slots * RECORD_BYTES
        try:
            if path.exists():
                path.replace(path.with_name(path.name + ".previous"))
            fresh = path.with_name(path.name + ".new")
            fresh.unlink(missing_ok=True)
            descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, size)
                self._ring = mmap.mmap(descriptor, size)
            finally:
                os.close(descriptor)
            # Renamed when it has a header: whoever reads finds a whole file or none.
            self._ring[:HEADER_BYTES] = pack_header(slots, os.getpid(), clock.wall(), rank, instance, incarnation)
            fresh.replace(path)
        except OSError as error:
            raise ConfigError(f"--flight-file {path}: cannot be made: {error}") from error
        self._write(START, 0, 0, 0, instance)

    def step_begins(self, number: int, sequences: int, tokens: int) -> None:
        """Note that a step goes to compute; without its end in the file, it is what hangs."""
        self._write(STEP_BEGIN, sequences, number, tokens, "")

    def step_ends(self, number: int, sequences: int, seconds: float) -> None:
        """Note that a step was computed."""
        self._write(STEP_END, sequences, number, int(seconds * 1e6), "")

    def room(self, side: str, room: int, before: str, event: str, after: str, rid: str) -> None:
        """Note one step of a room's table."""
        self._write(ROOM, 0, room, 0, f"{side} {before}>{after} {event} {rid}")

    def note(self, text: str) -> None:
        """Note anything else worth knowing afterwards."""
        self._write(NOTE, 0, 0, 0, text)

    def _write(self, kind: int, amount: int, subject: int, value: int, text: str) -> None:
        number = next(self._numbers)
        start = HEADER_BYTES + number % self._slots * RECORD_BYTES
        signed = subject - (1 << 64) if subject >= 1 << 63 else subject
        record = pack_record(number, self._clock.wall(), kind, amount, signed, value, text)
        self._ring[start : start + RECORD_BYTES] = record
