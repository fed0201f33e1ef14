"""Works at once: none outlives who waits for them."""

from __future__ import annotations

import asyncio

import pytest

from pdctl.collect.concurrency import all_of
from pdctl.errors import UsageError


def test_results_come_in_the_order_of_the_works() -> None:
    """Whoever is done first."""

    async def work(number: int, turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return number

    assert asyncio.run(all_of(work(number, 9 - number) for number in range(9))) == list(range(9))
    assert asyncio.run(all_of([])) == []


def test_cancelled_it_waits_until_every_work_has_tidied_up() -> None:
    """One ends at once, the other has a child to reap: `asyncio.gather` would not wait for that one."""
    tidied: list[str] = []

    async def quick() -> None:
        await asyncio.Event().wait()

    async def careful() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(50):
                await asyncio.sleep(0)
            tidied.append("careful")

    async def cancelled() -> None:
        works = asyncio.ensure_future(all_of([quick(), careful()]))
        for _ in range(5):
            await asyncio.sleep(0)
        works.cancel()
        with pytest.raises(asyncio.CancelledError):
            await works
        assert tidied == ["careful"]

    asyncio.run(cancelled())


def test_an_error_comes_as_it_is_and_ends_the_others() -> None:
    """No group of exceptions: callers look for PdctlError."""
    ended: list[bool] = []

    async def wrong() -> None:
        raise UsageError("no such key file", "correct it")

    async def other() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def first_other() -> None:
        await all_of([other(), wrong()])

    with pytest.raises(UsageError, match="no such key file"):
        asyncio.run(first_other())
    assert ended == [True]
