"""Who may join the control channel when it leaves this machine: CURVE with the deployment's one key pair.

Every instance of a deployment holds the same secret key (`--control-key-file`). It encrypts the channel, and prefill
lets in only who proves to hold it; so a stranger can neither read frames nor offer rooms. ZeroMQ asks for the
latter over ZAP (its RFC 27), which is answered here, in the control thread.
"""

from __future__ import annotations

from dataclasses import dataclass

import zmq
from zmq.utils import z85

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
ZAP_VERSION = b"1.0"
ZAP_REQUEST_PARTS = 7
CURVE = b"CURVE"


@dataclass(frozen=True, slots=True)
class ControlKey:
    """A CURVE key pair in Z85, 40 characters each."""

    secret: bytes
    public: bytes

    @classmethod
    def of(cls, secret: str | None) -> ControlKey | None:
        """Return the pair of a secret key, None where there is none. Raises ValueError for what is no key."""
        if secret is None:
            return None
        try:
            return cls(secret.encode(), zmq.curve_public(secret.encode()))
        except (ValueError, zmq.ZMQError) as error:
            raise ValueError("not a CURVE secret key: 40 characters of Z85") from error


class Doorkeeper:
    """Answers ZAP for one context: only holders of the key come in."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], key: ControlKey) -> None:
        self._known = z85.decode(key.public)
        self.socket = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(ZAP_ENDPOINT)
        self.refused = 0
        """Connections without the key, since the start."""

    def answer(self) -> None:
        """Answer every question that waits, without blocking."""
        while self.socket.poll(0):
            self._answer(self.socket.recv_multipart(zmq.NOBLOCK))

    def _answer(self, question: list[bytes]) -> None:
        is_known = len(question) == ZAP_REQUEST_PARTS and question[5:] == [CURVE, self._known]
        verdict = (b"200", b"OK") if is_known else (b"400", b"another control key")
        self.refused += not is_known
        number = question[1] if len(question) > 1 else b""
        self.socket.send_multipart([ZAP_VERSION, number, *verdict, b"", b""])
