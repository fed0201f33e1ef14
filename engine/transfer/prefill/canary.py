"""Prefill's side of the canary, see `engine.transfer.control.canary`."""

from __future__ import annotations

from engine.clock import Clock
from engine.observe.records import PeerTransfer
from engine.transfer.control import canary
from engine.transfer.data.rank_link import RankHub
from engine.transfer.data.source_orders import FillCanary, SourceOrder, SourceReport
from engine.transfer.prefill.rooms import DecodePeer
from engine.transfer.protocol.frames import Canary, CanaryRead, CanaryReady


class CanarySource:
    """Prefill's side; part of its control thread."""

    def __init__(self, page: int, clock: Clock, ranks: RankHub[SourceOrder, SourceReport]) -> None:
        self._results: dict[bytes, canary.CanaryResult] = {}
        """By routing id of the peer."""
        self._page = page
        self._clock = clock
        self._ranks = ranks
        self._holder: DecodePeer | None = None
        self._held_until = float("-inf")
        """Who may read the page now, and until when nobody else gets it."""
        self._nonce = b""
        self._unfilled: set[int] = set()

    def asked(self, peer: DecodePeer, asked: Canary) -> CanaryReady | None:
        """Have every rank fill the page for a peer; not while another one reads it (it will ask again).

        Returns what to tell a peer that asks again for a page that is filled already.
        """
        if self._holder is peer and asked.nonce == self._nonce:
            return None if self._unfilled else CanaryReady(self._nonce, self._page)
        now = self._clock.monotonic()
        if (self._holder not in (None, peer) and now < self._held_until) or len(asked.nonce) != canary.NONCE_BYTES:
            return None
        self._holder, self._held_until = peer, now + canary.LIMIT_S
        self._nonce, self._unfilled = asked.nonce, set(range(self._ranks.size))
        self._ranks.tell_all(FillCanary(self._page, asked.nonce))
        return None

    def filled(self, rank: int, nonce: bytes) -> tuple[DecodePeer, CanaryReady] | None:
        """Return whom to tell that the page may be read, once all ranks have filled it."""
        if nonce != self._nonce or self._holder is None:
            return None
        self._unfilled.discard(rank)
        return None if self._unfilled else (self._holder, CanaryReady(nonce, self._page))

    def told(self, peer: DecodePeer, read: CanaryRead) -> None:
        """Note what a peer found; who holds the page gives it back."""
        self._release(peer)
        self._results[peer.routing_id] = canary.CanaryResult(
            read.ok, self._clock.monotonic(), read.seconds, read.detail
        )

    def lost(self, peer: DecodePeer) -> None:
        """Forget a peer that is gone."""
        self._release(peer)
        self._results.pop(peer.routing_id, None)

    def _release(self, peer: DecodePeer) -> None:
        if self._holder is peer:
            self._holder = None

    def rows(self, peers: list[DecodePeer]) -> list[PeerTransfer]:
        """Return a row for every peer that is connected."""
        now = self._clock.monotonic()
        return [
            self._results.get(peer.routing_id, canary.CanaryResult()).shown(
                peer.instance, peer.incarnation, now, peer.refused
            )
            for peer in peers
        ]
