"""Where a prefill's control channel is: asked at its bootstrap port, `GET /registry`.

The answer is looked up again for every new link, so a restarted prefill is found by its new incarnation.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Any

import msgspec

from engine import PROTOCOL_VERSION
from engine.clock import Clock, SystemClock

LOOKUP_TIMEOUT_S = 2.0
LOOKUP_LIMIT_S = 35.0
"""A link waits no longer for a lookup. glibc gives name servers up to 30 s, 5 s where the first of two is dead."""
MAX_BYTES = 64 << 10


class RegistryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the bootstrap port answers, as JSON."""

    protocol: int = PROTOCOL_VERSION
    instance: str
    incarnation: str
    role: str
    control_endpoint: str
    contract: dict[str, str]


@dataclass(frozen=True, slots=True)
class Resolved:
    """Answer of a lookup: a record, or why there is none."""

    bootstrap: str
    number: int
    """Which question it answers: that of a link which was given up meanwhile is of no use."""
    record: RegistryRecord | None
    error: str = ""


def parse(data: bytes) -> RegistryRecord | str:
    """Return the record in a registry's answer, or what is wrong with it; never raises."""
    try:
        record = msgspec.json.decode(data, type=RegistryRecord)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return f"the answer is no registry record: {error}"
    if record.role != "prefill":
        return f"{record.instance} has role {record.role}, not prefill"
    if not record.control_endpoint.startswith("tcp://"):
        return f"control endpoint {record.control_endpoint!r} is not tcp"
    return record


class _BoundedSocket(socket.socket):
    """A connection whose whole answer has to come by `until`, however it is cut into pieces."""

    clock: Clock = SystemClock()
    until: float

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Receive as a socket does. Raises TimeoutError."""
        remaining = self.until - self.clock.monotonic()
        if remaining <= 0:
            raise TimeoutError("timed out")
        self.settimeout(remaining)
        return super().recv_into(buffer, nbytes, flags)


def look_up(bootstrap: str, number: int) -> Resolved:
    """Ask `bootstrap` (`host:port`) for its record; ignores proxies, raises for nothing that an address or peer does.

    Takes up to 2 s to connect (to each address, if the host has several) and 2 s for the answer, after the time that
    the system takes for the host's name.
    """
    try:
        record = _ask(bootstrap)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Resolved(bootstrap, number, None, str(getattr(error, "strerror", None) or error).lower())
    if isinstance(record, str):
        return Resolved(bootstrap, number, None, f"its registry{record}")
    return Resolved(bootstrap, number, record)


def _ask(bootstrap: str) -> RegistryRecord | str:
    connection = http.client.HTTPConnection(bootstrap)
    with _connected(connection.host, connection.port) as sock:
        connection.sock = sock
        connection.request("GET", "/registry", headers={"Connection": "close"})
        with connection.getresponse() as answer:
            if answer.status != http.HTTPStatus.OK:
                return f" answers {answer.status}"
            parsed = parse(answer.read(MAX_BYTES))
    return f": {parsed}" if isinstance(parsed, str) else parsed


def _connected(host: str, port: int) -> _BoundedSocket:
    made = _BoundedSocket(fileno=socket.create_connection((host, port), LOOKUP_TIMEOUT_S).detach())
    made.settimeout(LOOKUP_TIMEOUT_S)
    made.until = made.clock.monotonic() + LOOKUP_TIMEOUT_S
    return made


class Resolver:
    """Does each lookup in a short-lived thread of its own: none holds up a control thread, or another address.

    There is at most one thread an address: a question that comes while it is at work waits for it, the newest only.
    So what hangs (a name server) costs its own address, and as many threads as prefills are configured.
    """

    def __init__(self, answer: Callable[[Resolved], None]) -> None:
        self._answer = answer
        self._newest: dict[str, int] = {}
        """Address that a thread is at work on -> the number of the last question about it."""
        self._lock = Lock()

    def ask(self, bootstrap: str, number: int) -> None:
        """Look up; the answer, with that number, is handed to the callback from another thread."""
        with self._lock:
            is_at_work = bootstrap in self._newest
            self._newest[bootstrap] = number
        if is_at_work:
            return
        try:
            Thread(target=self._look_up, args=(bootstrap,), name=f"lookup-{bootstrap}", daemon=True).start()
        except RuntimeError as error:
            with self._lock:
                del self._newest[bootstrap]
            self._answer(Resolved(bootstrap, number, None, f"lookup failed: {error}"))

    def _look_up(self, bootstrap: str) -> None:
        answered: int | None = None
        while (number := self._next(bootstrap, answered)) is not None:
            try:
                resolved = look_up(bootstrap, number)
            except Exception as error:
                resolved = Resolved(bootstrap, number, None, f"lookup failed: {type(error).__name__}: {error}")
            self._answer(resolved)
            answered = number

    def _next(self, bootstrap: str, answered: int | None) -> int | None:
        with self._lock:
            number = self._newest[bootstrap]
            if number != answered:
                return number
            del self._newest[bootstrap]
            return None
