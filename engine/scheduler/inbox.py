"""The scheduler's end of the two message sockets; owned by the loop thread."""

from __future__ import annotations

import msgspec
import zmq

from engine.messages import Batch, Delta, Failure, FromScheduler, ToScheduler


class Inbox:
    """PULL requests, PUSH answers, over ipc sockets in the run directory. The API process binds both."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], run_dir: str) -> None:
        self._requests = context.socket(zmq.PULL)
        self._requests.setsockopt(zmq.RCVHWM, 0)
        self._requests.connect(f"ipc://{run_dir}/requests")
        self._answers = context.socket(zmq.PUSH)
        self._answers.setsockopt(zmq.SNDHWM, 0)
        self._answers.setsockopt(zmq.LINGER, 1000)
        self._answers.connect(f"ipc://{run_dir}/outputs")
        self._poller = zmq.Poller()
        self._poller.register(self._requests, zmq.POLLIN)
        self._decoder = msgspec.msgpack.Decoder(ToScheduler)
        self._encoder = msgspec.msgpack.Encoder()

    def watch(self, descriptor: int) -> None:
        """Have `receive` return early, too, when this descriptor is readable."""
        self._poller.register(descriptor, zmq.POLLIN)

    def receive(self, patience_ms: int) -> list[ToScheduler]:
        """Return all messages that are there, waiting up to `patience_ms` for the first."""
        messages: list[ToScheduler] = []
        self._poller.poll(patience_ms)
        while True:
            try:
                messages.append(self._decoder.decode(self._requests.recv(zmq.NOBLOCK)))
            except zmq.Again:
                return messages

    def answer(self, items: list[Delta | Failure]) -> None:
        """Send the answers of a turn as one message."""
        if items:
            self.send(Batch(items))

    def send(self, message: FromScheduler) -> None:
        """Send any message to the API process; never blocks (no high-water mark)."""
        self._answers.send(self._encoder.encode(message))

    def close(self) -> None:
        """Close both sockets, giving unsent answers a second."""
        self._requests.close(0)
        self._answers.close()
