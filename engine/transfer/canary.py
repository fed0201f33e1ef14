"""The canary: is the data plane alive, told by a READ of one page with fresh bytes, every 10 s for each peer.

Decode sends CANARY with a nonce. Prefill fills its canary page with it and answers CANARY_READY with the page's
checksums. Decode READs the page into its own canary page, by the thread, agent, descriptors and checksums that
rooms use, compares every byte, and tells prefill by CANARY_READ. Both pages lie in the registered pools, behind
those of the ledger. One canary at a time on each side; its cost is one page, 1-3 ms each 10 s.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.clock import Clock
from engine.kvcache.layout import PageMemory
from engine.observe.records import PeerTransfer
from engine.transfer.canary_result import CanaryResult
from engine.transfer.checksums import page_checksums
from engine.transfer.decode_links import Link, LinkPhase
from engine.transfer.frames import Canary, CanaryRead, CanaryReady, Frame
from engine.transfer.prefill_rooms import DecodePeer
from engine.transfer.read_worker import FenceRoom, Order, PostRead, ReadFinished

EVERY_S = 10.0
LIMIT_S = 5.0
"""A canary that has not ended by then has failed; it is waited for all the same before the next."""
NONCE_BYTES = 16


def fill(pages: PageMemory, page: int, nonce: bytes) -> None:
    """Write a nonce all over a page."""
    pages.bytes_view()[:, :, :, page] = _piece(pages, nonce)


def holds(pages: PageMemory, page: int, nonce: bytes) -> bool:
    """Say whether every byte of a page is the nonce's."""
    return bool((pages.bytes_view()[:, :, :, page] == _piece(pages, nonce)).all())


def _piece(pages: PageMemory, nonce: bytes) -> np.ndarray:
    return np.resize(np.frombuffer(nonce, dtype=np.uint8), pages.layout.piece_bytes)


class CanarySource:
    """Prefill's side; part of its control thread."""

    def __init__(self, pages: PageMemory, page: int, clock: Clock) -> None:
        self.results: dict[bytes, CanaryResult] = {}
        """By routing id of the peer."""
        self._pages = pages
        self._page = page
        self._clock = clock
        self._reserved: tuple[bytes, float] = (b"", float("-inf"))
        """Who may read the page now, and until when nobody else gets it."""

    def asked(self, peer: DecodePeer, canary: Canary) -> CanaryReady | None:
        """Fill the page for a peer; None while another one reads it (it will ask again)."""
        holder, until = self._reserved
        now = self._clock.monotonic()
        if (holder != peer.routing_id and now < until) or len(canary.nonce) != NONCE_BYTES:
            return None
        self._reserved = (peer.routing_id, now + LIMIT_S)
        fill(self._pages, self._page, canary.nonce)
        return CanaryReady(canary.nonce, self._page, page_checksums(self._pages, [self._page]))

    def told(self, peer: DecodePeer, read: CanaryRead) -> None:
        """Note what a peer found."""
        self._reserved = (b"", float("-inf"))
        self.results[peer.routing_id] = CanaryResult(read.ok, self._clock.monotonic(), read.seconds, read.detail)

    def rows(self, peers: list[DecodePeer]) -> list[PeerTransfer]:
        """Return a row for every peer that is connected."""
        now = self._clock.monotonic()
        return [
            self.results.get(peer.routing_id, CanaryResult()).shown(peer.instance, peer.incarnation, now, peer.refused)
            for peer in peers
        ]


@dataclass(slots=True)
class _Running:
    link: Link
    nonce: bytes
    asked_at: float
    is_posted: bool = False
    is_late: bool = False


class CanaryReader:
    """Decode's side; part of its control thread."""

    def __init__(
        self,
        pages: PageMemory,
        page: int,
        clock: Clock,
        send: Callable[[Link, Frame], object],
        order: Callable[[Order], None],
    ) -> None:
        self._pages = pages
        self._page = page
        self._clock = clock
        self._send = send
        self._order = order
        self._running: _Running | None = None

    def tick(self, links: list[Link], now: float) -> None:
        """Give up what takes too long, and begin the next one that is due."""
        running = self._running
        if running is not None:
            if not running.is_late and now - running.asked_at > LIMIT_S:
                running.is_late = True
                missing = "the READ does not end" if running.is_posted else "no answer to CANARY"
                self._ended(running, False, f"{missing} ({LIMIT_S:g} s)")
            if running.is_late and not running.is_posted:
                self._running = None
            return
        for link in links:
            is_usable = link.phase is LinkPhase.UP and link.refused is None
            if is_usable and now >= link.next_canary:
                link.next_canary = now + EVERY_S
                self._running = _Running(link, secrets.token_bytes(NONCE_BYTES), now)
                self._send(link, Canary(self._running.nonce))
                return

    def ready(self, link: Link, ready: CanaryReady) -> None:
        """Read the page; an answer to an older nonce is ignored."""
        running = self._running
        if running is None or running.link is not link or running.nonce != ready.nonce or running.is_posted:
            return
        place = link.place
        if place is None or not 0 <= ready.page < place.layout.pages:
            self._ended(running, False, f"prefill named page {ready.page}, which is not in its pool")
            self._running = None
            return
        running.is_posted = True
        self._order(PostRead(link.key, self._rid(link), 0, (ready.page,), (self._page,), ready.checksums))

    def finished(self, report: ReadFinished) -> bool:
        """Take the report of the canary's READ; False when it is another one's."""
        running = self._running
        if running is None or report.rid != self._rid(running.link):
            return False
        self._running = None
        if report.reason is not None:
            # Its late bytes must not meet the next nonce.
            self._order(FenceRoom(running.link.key, report.rid))
            self._ended(running, False, f"{report.reason}: {report.detail}", report.seconds)
        elif holds(self._pages, self._page, running.nonce):
            self._ended(running, True, "", report.seconds)
        else:
            self._ended(running, False, "the page that was read holds other bytes than prefill wrote", report.seconds)
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

    def _ended(self, running: _Running, ok: bool, detail: str, seconds: float = 0.0) -> None:
        result = running.link.canary
        result.ok, result.ended_at, result.seconds, result.detail = ok, self._clock.monotonic(), seconds, detail
        self._send(running.link, CanaryRead(running.nonce, ok, seconds, detail))
