"""Decode's side of the canary, see `engine.transfer.control.canary`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from engine.clock import Clock
from engine.kvcache.layout import PageMemory
from engine.observe.records import PeerTransfer
from engine.transfer.control import canary
from engine.transfer.data import canary_page
from engine.transfer.data.read_orders import FenceRoom, Order, PostRead, ReadFinished
from engine.transfer.decode.links import Link, LinkPhase
from engine.transfer.interface import FailReason
from engine.transfer.protocol.frames import Canary, CanaryRead, CanaryReady, Frame


@dataclass(slots=True)
class _Running:
    link: Link
    nonce: bytes
    since: float
    """When it was first asked for or, once its READs are posted, when they were."""
    ask_at: float
    is_posted: bool = False
    lanes: int = 0
    """READs that have not ended."""
    seconds: float = 0.0
    """Of the slowest."""
    failure: str = ""
    is_late: bool = False


class CanaryReader:
    """Decode's side; part of its control thread."""

    def __init__(
        self,
        pages: PageMemory,
        page: int,
        clock: Clock,
        send: Callable[[Link, Frame], object],
        order: Callable[[int, Order], None],
        every_s: float,
    ) -> None:
        """`pages` is rank 0's pool; `page` is the same in those of the other ranks. `every_s` 0: there are none."""
        self._pages = pages
        self._page = page
        self._clock = clock
        self._send = send
        self._order = order
        self._every_s = every_s
        self._running: _Running | None = None

    def tick(self, links: list[Link], now: float) -> None:
        """Give up what takes too long, and begin the next one that is due."""
        if self._running is not None:
            self._go_on(self._running, now)
            return
        for link in links if self._every_s else ():
            is_usable = link.phase is LinkPhase.UP and link.refused is None
            if is_usable and now >= link.next_canary:
                link.next_canary = now + self._every_s
                self._running = _Running(link, secrets.token_bytes(canary.NONCE_BYTES), now, now)
                self._go_on(self._running, now)
                return

    def _go_on(self, running: _Running, now: float) -> None:
        """Ask again until the page is there, since another decode may have it; give up what takes too long."""
        if not running.is_posted and running.link.phase is not LinkPhase.UP:
            self._running = None
            return
        limit = canary.LIMIT_S if running.is_posted else canary.ANSWER_LIMIT_S
        if not running.is_late and now - running.since > limit:
            running.is_late = True
            missing = "the READ does not end" if running.is_posted else "no answer to CANARY"
            self._ended(running, f"{missing} ({limit:g} s)")
        if running.is_posted:
            return
        if running.is_late:
            self._running = None
        elif now >= running.ask_at:
            running.ask_at = now + canary.ASK_EVERY_S
            self._send(running.link, Canary(running.nonce))

    def ready(self, link: Link, ready: CanaryReady) -> None:
        """Read the page over every lane; an answer to an older nonce is ignored."""
        running = self._running
        if running is None or running.link is not link or running.nonce != ready.nonce or running.is_posted:
            return
        if not 0 <= ready.page < link.pages:
            self._ended(running, f"prefill named page {ready.page}, which is not in its pool")
            self._running = None
            return
        running.is_posted, running.since, running.lanes = True, self._clock.monotonic(), len(link.lanes)
        for lane in link.lanes:
            sums = canary_page.expected_checksums(self._pages.layout, ready.nonce, lane.heads.count)
            order = PostRead(lane.key, self._rid(link), 0, (ready.page,), (self._page,), sums)
            self._order(lane.heads.reader_rank, order)

    def finished(self, report: ReadFinished) -> bool:
        """Take the report of one of the canary's READs; False when it is another one's."""
        running = self._running
        if running is None or report.rid != self._rid(running.link):
            return False
        running.lanes -= 1
        running.seconds = max(running.seconds, report.seconds)
        if report.reason is FailReason.CHECKSUM_MISMATCH:
            running.failure = canary.OTHER_BYTES
        elif report.reason is not None:
            running.failure = f"{report.reason}: {report.detail}"
            if (lane := running.link.lane(report.lane)) is not None:
                # Its late bytes must not meet the next nonce.
                self._order(lane.heads.reader_rank, FenceRoom(lane.key, report.rid))
        if running.lanes == 0:
            self._running = None
            if not running.failure and not canary_page.holds(self._pages, self._page, running.nonce):
                running.failure = canary.OTHER_BYTES
            self._ended(running, running.failure)
        return True

    def rows(self, links: list[Link]) -> list[PeerTransfer]:
        """Return a row for every configured prefill."""
        now = self._clock.monotonic()
        rows = []
        for link in links:
            row = link.canary.shown(link.instance, link.incarnation, now, link.refused)
            if link.phase is not LinkPhase.UP:
                row.state, row.detail = "unreachable", link.error or str(link.phase)
            rows.append(row)
        return rows

    def _rid(self, link: Link) -> str:
        return f"canary {link.key}"

    def _ended(self, running: _Running, failure: str) -> None:
        """Note the end and tell prefill; no failure: every byte is the nonce's."""
        result, seconds = running.link.canary, running.seconds
        result.ok, result.ended_at, result.seconds, result.detail = (
            not failure,
            self._clock.monotonic(),
            seconds,
            failure,
        )
        self._send(running.link, CanaryRead(running.nonce, not failure, seconds, failure))
