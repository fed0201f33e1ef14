"""Many works at once, of which none outlives its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TypeVar

T = TypeVar("T")


async def all_of(works: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Do all at once and return what they return, in their order; raises the first exception.

    Unlike `asyncio.gather`, which a cancelled work leaves at once, it ends when every work has, also when it is
    cancelled: a child that one of them was just starting is killed and reaped by then.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
