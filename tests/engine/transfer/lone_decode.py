"""Decode's control thread without the thread: the test takes its turns, moves its clock and says what comes."""

from __future__ import annotations

from threading import Event

from engine.config import Role
from engine.observe.journal import Journal
from engine.observe.records import RoomRecord
from engine.transfer.control.channel import Connection, Sent
from engine.transfer.control.registry import RegistryRecord
from engine.transfer.data.rank_link import InstanceRanks
from engine.transfer.data.read_orders import Order
from engine.transfer.decode.control import DecodeControl
from engine.transfer.decode.links import Link
from engine.transfer.decode.rooms import OpenRoom
from engine.transfer.protocol import frames
from engine.transfer.protocol.contract import pools_of
from engine.transfer.protocol.frames import Envelope, Frame
from tests.engine.clock import ManualClock
from tests.engine.transfer.transfer_sides import CONTRACT, LAYOUT, PROMPT, config_of

PEER = "127.0.0.1:8998"
INCARNATION = "prefill-incarnation"
HEADS = range(LAYOUT.kv_heads)


class ManualChannel:
    """In place of a socket: what comes is put there, what goes is kept."""

    def __init__(self) -> None:
        self.state = Connection.UP
        self.coming: list[bytes] = []
        self.sent: list[Frame] = []
        self.is_closed = False

    def watch(self) -> Connection:
        return self.state

    def receive(self) -> bytes | None:
        return self.coming.pop(0) if self.coming else None

    def send(self, data: bytes) -> Sent:
        envelope = frames.decode(data)
        assert isinstance(envelope, Envelope)
        self.sent.append(envelope.body)
        return Sent.SENT

    def close(self, linger_ms: int = 0) -> None:
        self.is_closed = True


class LoneDecode:
    """One decode of one configured prefill."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.orders: list[Order] = []
        self.asked: list[int] = []
        """The numbers of the lookups."""
        self.channel = ManualChannel()
        self.config = config_of(Role.DECODE, "decode-0", peers=(PEER,))
        ranks = InstanceRanks((HEADS,), "")
        self.control = DecodeControl(
            self.config, CONTRACT, LAYOUT, ranks, self.clock, Journal(self.clock), Event(),
            own=self.orders.append, ask=lambda _, number: self.asked.append(number), end_instance=print,
        )  # fmt: skip
        self.control.links.dial_all()

    @property
    def link(self) -> Link:
        """The link that counts now."""
        return self.control.links.current[PEER]

    def end(self) -> None:
        """Leave nothing open."""
        self.control._leave()
        self.control._context.term()

    def link_up(self) -> None:
        """Connect the link to the channel and have it greeted."""
        self.link.record = RegistryRecord(
            instance="prefill-0",
            incarnation=INCARNATION,
            role="prefill",
            control_endpoint="tcp://127.0.0.1:1",
            contract=CONTRACT,
        )
        self.link.channel = self.channel  # type: ignore[assignment]
        self.link.phase = type(self.link.phase).CONNECTING
        self.hear(self.hello(1))

    def hello(self, source: int) -> frames.Hello:
        """Return what prefill says of itself; `source` counts its data planes."""
        (pool,) = pools_of(LAYOUT, [HEADS])
        ranks = [frames.RankPool(pool.first_head, pool.geometry, b"metadata", source)]
        return frames.Hello("prefill-0", "prefill", CONTRACT, ranks, source)

    def put(self, frame: Frame) -> None:
        """Have a frame of prefill come."""
        self.channel.coming.append(frames.encode(Envelope(INCARNATION, self.config.incarnation, 0, frame)))

    def hear(self, frame: Frame) -> None:
        """Have a frame come, and read it."""
        self.put(frame)
        self.control._receive()

    def open(self, rid: str, room: int) -> None:
        """The loop opens a room of `PROMPT`."""
        record = RoomRecord(request_id=rid, rid=rid, room=room, role=Role.DECODE, state="queued")
        self.control._obey(OpenRoom(rid, room, PEER, len(PROMPT), b"hash", 0, record))
