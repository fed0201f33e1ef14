"""Real prefill and decode sides with small pools, in this process or in one of their own."""

from __future__ import annotations

import http.server
import os
import select
import threading
import time
import uuid
from collections.abc import Callable
from typing import TypeVar

os.environ.setdefault("NIXL_LOG_LEVEL", "ERROR")
os.environ.setdefault("UCX_LOG_LEVEL", "fatal")
os.environ.setdefault("UCX_NET_DEVICES", "lo")

import msgspec
import numpy as np

from engine.clock import SystemClock
from engine.config import EngineConfig, Role
from engine.kvcache.pool import KVLayout, KVPool
from engine.observe.journal import Journal
from engine.observe.records import RoomRecord
from engine.observe.threads import Supervisor
from engine.transfer.control.registry import RegistryRecord
from engine.transfer.data.rank_link import InstanceRanks
from engine.transfer.data.rank_side import rank_transfer
from engine.transfer.decode.reader import DecodeReader
from engine.transfer.interface import Event, FirstToken
from engine.transfer.prefill.source import PrefillSource

LAYOUT = KVLayout(layers=2, kv_heads=2, pages=64, page_size=4, head_dim=8, dtype="float32", item_bytes=4)
MOST_HEADS = 6
CANARY_PAGE = LAYOUT.pages - 1
PROMPT = list(range(100, 114))
"""14 tokens are 4 pages of 4."""
SOURCE = [10, 11, 30, 3]
TARGET = [5, 6, 7, 20]
"""Its pages on prefill and on decode."""
PAGE_BYTES = 2 * 2 * 2 * 4 * 8 * 4
CONTRACT = {"model": "tiny", "dtype": "float32"}
TOKEN = FirstToken(token_id=7, logprob=None, finish=None, cached_tokens=0)
LAST_TOKEN = FirstToken(token_id=9, logprob=None, finish="stop", cached_tokens=0)
WAIT_S = 20.0

Found = TypeVar("Found", bound=Event)


class Registry:
    """Serves `GET /registry` on loopback, as the API process of a prefill does."""

    def __init__(self, port: int = 0) -> None:
        self.answer = b""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if outer.answer else 503)
                self.end_headers()
                self.wfile.write(outer.answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def publish(self, prefill: Prefill) -> None:
        """Say that this prefill is the one behind the address."""
        self.answer = msgspec.json.encode(
            RegistryRecord(
                instance=prefill.config.instance,
                incarnation=prefill.config.incarnation,
                role="prefill",
                control_endpoint=prefill.transfer.control_endpoint,
                contract=CONTRACT,
            )
        )

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Side:
    """A pool, the transfer over it, and the events seen so far."""

    transfer: PrefillSource | DecodeReader

    def __init__(self, config: EngineConfig, ranks: InstanceRanks | None = None, rank: int = 0) -> None:
        self.config = config
        self.ranks = ranks or InstanceRanks((range(LAYOUT.kv_heads),), "")
        self.heads = self.ranks.kv_heads[rank]
        self.clock = SystemClock()
        self.pool = KVPool(msgspec.structs.replace(LAYOUT, kv_heads=len(self.heads)))
        self.journal = Journal(self.clock)
        self.supervisor = Supervisor()
        self.seen: list[Event] = []
        self.records: dict[str, RoomRecord] = {}

    def record(self, rid: str, room: int) -> RoomRecord:
        record = RoomRecord(request_id=rid, rid=rid, room=room, role=self.config.role, state="queued")
        self.records[rid] = self.journal.open(record, self.clock.wall())
        return record

    def await_event(self, kind: type[Found], rid: str, timeout_s: float = WAIT_S) -> Found:
        """Wait for the first event of a kind for a room; fail the test when another ends the wait."""
        poller = select.poll()
        poller.register(self.transfer.wakeup_fd, select.POLLIN)
        until = time.monotonic() + timeout_s
        while True:
            self.seen += self.transfer.poll()
            for event in self.seen:
                if isinstance(event, kind) and event.rid == rid:
                    return event
            remaining = until - time.monotonic()
            assert remaining > 0, f"no {kind.__name__} for {rid} in {timeout_s} s; seen {self.seen}"
            poller.poll(int(min(remaining, 0.05) * 1000) + 1)

    def events_of(self, rid: str) -> list[Event]:
        """Return the events of a room so far."""
        self.seen += self.transfer.poll()
        return [event for event in self.seen if event.rid == rid]

    def fill(self, pages: list[int], seed: int) -> None:
        """Write known bytes into pages: this rank's heads of what the model would have computed."""
        for number, page in enumerate(pages):
            self.pool.bytes_view()[:, :, :, page] = pattern(seed, number)[:, :, self.heads.start : self.heads.stop]

    def holds(self, pages: list[int], seed: int, first: int = 0) -> bool:
        """Say whether pages hold what `fill` wrote, starting with the `first` page of the prompt."""
        view = self.pool.bytes_view()
        mine = slice(self.heads.start, self.heads.stop)
        return all(
            np.array_equal(view[:, :, :, page], pattern(seed, first + number)[:, :, mine])
            for number, page in enumerate(pages)
        )

    def stop(self) -> None:
        self.transfer.stop()
        self.supervisor.stop()


def eventually(condition: Callable[[], object], timeout_s: float = WAIT_S) -> None:
    """Wait until a condition holds; for states that no event announces."""
    tries = threading.Event()
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, "the condition did not come true"
        tries.wait(0.005)


def pattern(seed: int, page: int) -> np.ndarray:
    """Return the bytes of a page: `[layers, 2, the model's heads, piece bytes]`, different in every place."""
    shape = (LAYOUT.layers, 2, MOST_HEADS, LAYOUT.piece_bytes)
    return np.random.default_rng((seed, page)).integers(0, 256, shape, dtype=np.uint8)


def config_of(role: Role, name: str, **changes: object) -> EngineConfig:
    """Return a configuration with a new incarnation."""
    settings: dict[str, object] = {"model": "none", "served_name": "tiny", "port": 1, "page_size": 4}
    settings |= {"role": role, "instance": name, "incarnation": uuid.uuid4().hex} | changes
    return msgspec.convert(settings, EngineConfig)


class Prefill(Side):
    transfer: PrefillSource

    def __init__(
        self,
        contract: dict[str, str] = CONTRACT,
        config: EngineConfig | None = None,
        ranks: InstanceRanks | None = None,
        **changes: object,
    ) -> None:
        super().__init__(config or config_of(Role.PREFILL, "prefill-0", **changes), ranks)
        self.transfer = PrefillSource(
            self.config, self.pool, contract, self.clock, self.journal, self.supervisor, self.ranks
        )
        self.transfer.use_canary_page(CANARY_PAGE)
        self.transfer.start()

    def plane_pid(self) -> int:
        """Process id of the data plane; 0 while there is none."""
        return self.transfer._worker.pid or 0

    def announce(self, rid: str, room: int, prompt: list[int]) -> None:
        self.transfer.announce(rid, room, prompt, self.record(rid, room))


class OtherRank(Side):
    """A rank other than 0 of either side."""

    def __init__(self, config: EngineConfig, ranks: InstanceRanks, rank: int) -> None:
        super().__init__(config, ranks, rank)
        made = rank_transfer(config, rank, self.pool, ranks, self.clock, self.supervisor)
        assert made is not None
        self.rank_side = made
        made.start()

    def plane_pid(self) -> int:
        """Process id of a prefill rank's data plane; 0 while there is none."""
        return self.rank_side._worker.pid or 0  # type: ignore[attr-defined]

    def flip(self, page: int) -> None:
        """Change one bit of a page."""
        self.pool.bytes_view()[1, 0, 0, page, 3] ^= 1


class Decode(Side):
    transfer: DecodeReader

    def __init__(
        self,
        *peers: str,
        contract: dict[str, str] = CONTRACT,
        end: Callable[[str], None] = print,
        config: EngineConfig | None = None,
        ranks: InstanceRanks | None = None,
        **changes: object,
    ) -> None:
        super().__init__(config or config_of(Role.DECODE, "decode-0", peers=peers, **changes), ranks)
        self.transfer = DecodeReader(
            self.config, self.pool, contract, self.clock, self.journal, self.supervisor, self.ranks, end
        )
        self.transfer.use_canary_page(CANARY_PAGE)
        self.transfer.start()

    def await_reading(self, rid: str) -> None:
        """Wait until a READ of the room was posted."""
        eventually(lambda: self.transfer._control.rooms[rid].reads)
        eventually(lambda: any(peer.running for peer in self.transfer._worker._peers.values()))

    def open(self, rid: str, room: int, prompt: list[int], prefix_tokens: int = 0) -> None:
        bootstrap = self.config.peers[0]
        self.transfer.open(rid, room, bootstrap, prompt, prefix_tokens, self.record(rid, room))
