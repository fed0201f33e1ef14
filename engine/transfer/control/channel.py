"""The control channel over ZeroMQ. Every socket here belongs to the control thread.

Prefill binds one ROUTER; decode connects one DEALER per prefill incarnation. LINGER 0 and IMMEDIATE 1:
nothing waits in a queue for a peer that is not there. Sending never blocks: a frame that cannot go now is
repeated by its outbox.

How a broken connection is noticed (measured, libzmq 4.3.5): DEALER with RECONNECT_IVL -1 reports DISCONNECTED
or CLOSED on its monitor and stays dead; ROUTER with ROUTER_MANDATORY fails the next send with EHOSTUNREACH
within 2 ms of a kill -9, and heartbeats go out every 0.5 s. So both sides know within a heartbeat.

With a control key the channel is encrypted and closed to strangers (`engine.transfer.control.control_key`).
"""

from __future__ import annotations

from enum import StrEnum

import zmq
from zmq.utils.monitor import recv_monitor_message

from engine.transfer.control.control_key import ControlKey, Doorkeeper
from engine.transfer.protocol.frames import MAX_FRAME_BYTES

HIGH_WATER_MARK = 10_000
CONNECT_TIMEOUT_MS = 2_000
GOODBYE_LINGER_MS = 200
HANDSHAKE_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)


class Sent(StrEnum):
    """What became of a frame."""

    SENT = "sent"
    FULL = "full"
    """Not now: repeat later."""
    GONE = "gone"
    """The peer's connection is broken."""


class Connection(StrEnum):
    """State of a DEALER's one connection."""

    CONNECTING = "connecting"
    UP = "up"
    BROKEN = "broken"


def _bounded(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    socket.setsockopt(zmq.HANDSHAKE_IVL, CONNECT_TIMEOUT_MS)
    return socket


class PrefillChannel:
    """The ROUTER that decodes connect to; peers are told apart by their routing id."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], host: str, key: ControlKey | None = None) -> None:
        self.socket = _bounded(context, zmq.ROUTER)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._door = Doorkeeper(context, key) if key else None
        if key:
            self.socket.curve_secretkey = key.secret
            self.socket.curve_server = True
        port = self.socket.bind_to_random_port(f"tcp://{host}")
        self.endpoint = f"tcp://{host}:{port}"

    @property
    def sockets(self) -> list[zmq.Socket[bytes]]:
        """Return the sockets to wait for."""
        return [self.socket, self._door.socket] if self._door else [self.socket]

    @property
    def strangers(self) -> int:
        """Return how many connections were refused for their key."""
        return self._door.refused if self._door else 0

    def send(self, routing_id: bytes, data: bytes) -> Sent:
        """Send to one peer without blocking."""
        try:
            self.socket.send_multipart([routing_id, data], zmq.NOBLOCK)
        except zmq.Again:
            return Sent.FULL
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return Sent.GONE
        return Sent.SENT

    def receive(self) -> tuple[bytes, bytes] | None:
        """Return (routing id, data) of the next message, or None; data is empty for other shapes."""
        if self._door:
            self._door.answer()
        try:
            parts = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        return parts[0], parts[1] if len(parts) == 2 else b""

    def close(self) -> None:
        """Close, giving a last GOODBYE up to 200 ms to leave."""
        self.socket.close(linger=GOODBYE_LINGER_MS)
        if self._door:
            self._door.socket.close()


class DecodeChannel:
    """A DEALER to one prefill incarnation. Once broken it stays so: a new one is made after a new lookup."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        routing_id: bytes,
        key: ControlKey | None = None,
    ) -> None:
        self.socket = _bounded(context, zmq.DEALER)
        if key:
            self.socket.curve_secretkey = key.secret
            self.socket.curve_publickey = key.public
            self.socket.curve_serverkey = key.public
        self.socket.setsockopt(zmq.ROUTING_ID, routing_id)
        self.socket.setsockopt(zmq.RECONNECT_IVL, -1)
        self.socket.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_TIMEOUT_MS)
        watched = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | HANDSHAKE_FAILED
        self.monitor = self.socket.get_monitor_socket(watched)
        self.state = Connection.CONNECTING
        self.is_key_refused = False
        self.socket.connect(endpoint)

    def watch(self) -> Connection:
        """Read the monitor and return the connection's state."""
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)["event"]
            self.is_key_refused |= bool(event & HANDSHAKE_FAILED)
            up = event == zmq.EVENT_HANDSHAKE_SUCCEEDED and self.state is Connection.CONNECTING
            self.state = Connection.UP if up else Connection.BROKEN
        return self.state

    def send(self, data: bytes) -> Sent:
        """Send without blocking."""
        if self.state is Connection.BROKEN:
            return Sent.GONE
        try:
            self.socket.send(data, zmq.NOBLOCK)
        except zmq.Again:
            return Sent.FULL
        return Sent.SENT

    def receive(self) -> bytes | None:
        """Return the next message, or None. Messages of several parts are empty."""
        try:
            parts = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        return parts[0] if len(parts) == 1 else b""

    def close(self, linger_ms: int = 0) -> None:
        """Close the socket and its monitor."""
        self.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.socket.close(linger=linger_ms)
