"""Numbers with their place."""

from __future__ import annotations

import msgspec

from pdctl.evidence.records import Place


class Reading(msgspec.Struct, frozen=True):
    """A level or a total."""

    value: float
    place: Place
    is_batch_written: bool
    """The engine writes it on a batch only: with its counters still, it is frozen and decides nothing alone."""


class Rise(msgspec.Struct, frozen=True):
    """Growth of a counter between the two samples."""

    value: float
    place: Place
