"""Where a device is plugged in, as kernel and driver write it."""

from __future__ import annotations


def slot_of(text: str) -> tuple[int, ...]:
    """Return the numbers of a slot, empty for what is none: `PCI:0000:3b:00` is `00000000:3B:00.0`."""
    try:
        return tuple(int(part, 16) for part in text.removeprefix("PCI:").partition(".")[0].split(":"))
    except ValueError:
        return ()
