"""Where a prefill's control channel is: asked at its bootstrap port, `GET /registry`.

The answer is looked up again for every new link, so a restarted prefill is found by its new incarnation.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event

import msgspec

from engine import PROTOCOL_VERSION

LOOKUP_TIMEOUT_S = 2.0
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


def look_up(bootstrap: str) -> Resolved:
    """Ask `bootstrap` (`host:port`) for its record; blocks up to 2 s, ignores proxies, never raises."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    url = f"http://{bootstrap}/registry"
    try:
        with opener.open(url, timeout=LOOKUP_TIMEOUT_S) as answer:
            parsed = parse(answer.read(MAX_BYTES))
    except urllib.error.HTTPError as error:
        error.close()
        return Resolved(bootstrap, None, f"its registry answers {error.code}")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return Resolved(bootstrap, None, str(getattr(reason, "strerror", None) or reason).lower())
    if isinstance(parsed, str):
        return Resolved(bootstrap, None, f"its registry: {parsed}")
    return Resolved(bootstrap, parsed)


class Resolver:
    """Does the lookups in a thread of its own, one after the other: a control thread never waits for one."""

    def __init__(self, answer: Callable[[Resolved], None], stopping: Event) -> None:
        self._answer = answer
        self._stopping = stopping
        self._questions: SimpleQueue[str] = SimpleQueue()

    def ask(self, bootstrap: str) -> None:
        """Queue a lookup; its answer is handed to the callback from the resolver's thread."""
        self._questions.put(bootstrap)

    def run(self) -> None:
        """Body of the supervised thread."""
        while not self._stopping.is_set():
            try:
                bootstrap = self._questions.get(timeout=0.25)
            except Empty:
                continue
            try:
                resolved = look_up(bootstrap)
            except Exception as error:
                resolved = Resolved(bootstrap, None, f"lookup failed: {type(error).__name__}: {error}")
            self._answer(resolved)
