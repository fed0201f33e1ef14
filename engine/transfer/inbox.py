"""A queue between threads whose reader can also wait in a poller."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Inbox(Generic[Item]):
    """Many writers, one reader. `put` never blocks; the file descriptor is readable while items wait."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """Return the descriptor to poll for reading."""
        return self._event

    def put(self, item: Item) -> None:
        """Append an item and wake the reader."""
        self._items.append(item)
        self.wake()

    def wake(self) -> None:
        """Make the reader look around, though there may be no item."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_write(self._event, 1)

    def settle(self) -> None:
        """Clear the wake-up; the reader calls this before it takes items, so that none is overlooked."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)

    def take(self) -> Item | None:
        """Remove and return the oldest item, or None."""
        try:
            return self._items.popleft()
        except IndexError:
            return None

    def take_all(self) -> list[Item]:
        """Clear the wake-up, remove and return everything, oldest first."""
        self.settle()
        items = []
        while (item := self.take()) is not None:
            items.append(item)
        return items

    def __len__(self) -> int:
        return len(self._items)
