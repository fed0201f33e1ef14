"""Hostile frames for both control sockets: random bytes, broken frames, and well-formed ones that make no sense."""

from __future__ import annotations

import http.server
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import msgspec
import zmq

from engine.transfer.control.registry import RegistryRecord
from engine.transfer.interface import FailReason, FirstToken
from engine.transfer.protocol import frames
from engine.transfer.protocol.frames import Envelope, Frame, encode

ROOMS = 50


def random_frame(chance: random.Random) -> Frame:
    """Return a frame with random contents, of any kind."""
    room, small = chance.randrange(ROOMS), chance.randrange(-5, 5000)
    text, blob = chance.choice(["", "x" * 300, *FailReason]), chance.randbytes(chance.randrange(40))
    token = FirstToken(small, None, chance.choice([None, "stop"]), small)
    kind: Callable[[], Frame] = chance.choice(
        (
            lambda: frames.Offer(room, small, blob, small),
            lambda: frames.Refused(room, text, text),
            lambda: frames.Ready(room, small, [chance.randrange(-3, 900)] * 3, [blob], chance.random() < 0.5, token),
            lambda: frames.Commit(room),
            lambda: frames.Committed(room),
            lambda: frames.Gone(room, text, text),
            lambda: frames.Failed(room, text, text),
            lambda: frames.Abort(room, text, text),
            lambda: frames.Ack(room, chance.choice(list(frames.Kind)), small),
            lambda: frames.Nack(None if chance.random() < 0.05 else room, chance.choice(list(frames.Kind)), text),
            lambda: frames.Heartbeat(small, chance.random(), small),
            lambda: frames.Canary(blob),
            lambda: frames.CanaryReady(blob, small),
            lambda: frames.CanaryRead(blob, chance.random() < 0.5, 0.1, text),
        )
    )
    return kind()


def random_message(chance: random.Random, src: str, dst: str) -> bytes:
    """Return noise, a frame with flipped bytes, or a whole frame; one in ten from or to a stranger."""
    if chance.random() < 0.2:
        return chance.randbytes(chance.randrange(200))
    if chance.random() < 0.1:
        src = uuid.UUID(int=chance.getrandbits(128)).hex
    if chance.random() < 0.1:
        dst = uuid.UUID(int=chance.getrandbits(128)).hex
    data = bytearray(encode(Envelope(src, dst, chance.randrange(3), random_frame(chance))))
    if chance.random() < 0.3:
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


Heard = Callable[[], int]
"""Returns how many frames the assailed side has received so far."""
BATCH = 200
"""Messages between two looks at what was heard."""


def assail_prefill(bootstrap: str, seed: int, count: int, heard: Heard) -> None:
    """Say HELLO to a prefill as a decode would, then send it hostile messages until it has heard `count`."""
    chance = random.Random(seed)
    record = msgspec.json.decode(httpx.get(f"http://{bootstrap}/registry").content, type=RegistryRecord)
    me = uuid.UUID(int=chance.getrandbits(128)).hex
    geometry = frames.Geometry(0, 1, 1, 1, 1, 1, "float32", 4)
    hello = frames.Hello("hostile", "decode", record.contract, [frames.RankPool(0, geometry)])
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 5000
        socket.connect(record.control_endpoint)
        socket.send(encode(Envelope(me, record.incarnation, 0, hello)))
        enough = heard() + count
        while heard() < enough:
            for _ in range(BATCH):
                message = random_message(chance, me, record.incarnation)
                socket.send_multipart([message] * chance.choice((1, 1, 1, 1, 2)))


class HostilePrefill:
    """A registry and a control socket that answer a decode's HELLO, and then anything."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._incarnation = uuid.UUID(int=self._chance.getrandbits(128)).hex
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        record = RegistryRecord(
            instance="hostile",
            incarnation=self._incarnation,
            role="prefill",
            control_endpoint=f"tcp://127.0.0.1:{port}",
            contract={},
        )
        answer = msgspec.json.encode(record)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.bootstrap = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def assail(self, count: int, heard: Heard) -> None:
        """Wait for a decode's HELLO, answer it, and send hostile messages until it has heard `count`.

        A decode that closes the link (a NACK of HELLO is among the frames) loses what was on its way, comes back
        and gets the rest.
        """
        enough, peer, decode = heard() + count, b"", ""
        while heard() < enough:
            for _ in range(BATCH):
                while self._socket.poll(0 if decode else 20_000):
                    sender, data = self._socket.recv_multipart()[:2]
                    envelope = frames.decode(data)
                    if isinstance(envelope, Envelope) and isinstance(envelope.body, frames.Hello):
                        peer, decode = sender, envelope.src
                        self._greet(peer, envelope)
                assert decode, "decode never came"
                if not self._send(peer, random_message(self._chance, self._incarnation, decode)):
                    decode = ""

    def _send(self, peer: bytes, message: bytes) -> bool:
        """Return whether that connection was still there."""
        try:
            self._socket.send_multipart([peer, message])
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return False
        return True

    def _greet(self, peer: bytes, envelope: Envelope) -> None:
        body = envelope.body
        assert isinstance(body, frames.Hello)
        ranks = [frames.RankPool(rank.first_head, rank.geometry, b"junk", 1) for rank in body.ranks]
        hello = frames.Hello("hostile", "prefill", body.contract, ranks, 1)
        self._send(peer, encode(Envelope(self._incarnation, envelope.src, 0, hello)))

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._socket.close()
        self._context.term()


@contextmanager
def hostile_prefill(seed: int) -> Iterator[HostilePrefill]:
    made = HostilePrefill(seed)
    try:
        yield made
    finally:
        made.stop()
