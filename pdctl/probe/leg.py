"""One HTTP request of a probe, run by a process that outlives pdctl (`leg_process.py`)."""

from __future__ import annotations

import base64
import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pdctl.collect.credentials import api_key
from pdctl.collect.http import MAX_BODY_BYTES, Outcome, tls_context
from pdctl.deployment.model import Instance

HOLD_S = 7200.0
"""How long a connection is held open at most: the longest timeout known of any family (a gloo group's)."""

_PROGRAM = Path(__file__).with_name("leg_process.py")


class LegRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is told, as JSON on its stdin. The API key is among the headers, never in argv."""

    url: str
    body: str
    headers: dict[str, str]
    ca_file: str | None = None
    connect_s: float = 3.0
    hold_s: float = HOLD_S
    max_body_bytes: int = MAX_BODY_BYTES


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the process."""

    event: str
    at: float
    pid: int | None = None
    status: int | None = None
    outcome: str = Outcome.RESET
    body: str = ""
    error: str | None = None


class LegEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the request. Times are Unix; absent: it did not come that far."""

    outcome: Outcome
    status: int | None = None
    body: bytes = b""
    error: str | None = None
    sent_at: float | None = None
    head_at: float | None = None
    first_at: float | None = None
    end_at: float | None = None

    @property
    def ok(self) -> bool:
        """Return whether a whole answer with a 2xx status came."""
        return self.outcome is Outcome.ANSWERED and self.status is not None and 200 <= self.status < 300


class Leg:
    """A request on its way. It ends by itself, by `stop`, or goes on without us after `leave`."""

    def __init__(self, name: str, request: LegRequest, locks: Sequence[int], ended: queue.Queue[Leg]) -> None:
        """Send `request`; the process inherits the descriptors `locks`. Puts itself on `ended` at its end."""
        self.name = name
        self._events: list[_Event] = []
        self._ended = ended
        self._launcher = launcher = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=tuple(locks),
            start_new_session=True,
        )
        assert launcher.stdin is not None
        with contextlib.suppress(BrokenPipeError), launcher.stdin as stdin:
            stdin.write(msgspec.json.encode(request))
        follower = threading.Thread(target=self._follow, args=(launcher,), name=f"leg-{name}", daemon=True)
        follower.start()

    @property
    def pid(self) -> int | None:
        """Return the process that holds the connection, once it runs."""
        return next((event.pid for event in tuple(self._events) if event.pid is not None), None)

    @property
    def is_over(self) -> bool:
        """Return whether the connection has ended."""
        return any(event.event == "end" for event in tuple(self._events))

    def result(self) -> LegEnd:
        """Return what is known now; `timeout` where the end has not come."""
        events = {event.event: event for event in tuple(self._events)}
        end, head = events.get("end"), events.get("head")
        times = {f"{name}_at": event.at for name, event in events.items() if name != "start"}
        return LegEnd(
            outcome=Outcome(end.outcome) if end else Outcome.TIMEOUT,
            status=head.status if head else None,
            body=base64.b64decode(end.body) if end else b"",
            error=end.error if end else None,
            **times,
        )

    def stop(self) -> None:
        """Close the connection. Only where the family is known to survive that."""
        pid = self.pid
        if pid is None:
            self._launcher.terminate()
        # The pid cannot be another's: the process is alive as long as its end is not reported.
        elif not self.is_over:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _follow(self, launcher: subprocess.Popen[bytes]) -> None:
        assert launcher.stdout is not None
        # It forks the process proper and returns, so there is never a zombie to reap later.
        launcher.wait()
        with launcher.stdout as lines:
            for line in lines:
                self._events.append(msgspec.json.decode(line, type=_Event))
        if not self.is_over:
            self._events.append(_Event(event="end", at=time.time(), error="the process was ended"))
        self._ended.put(self)


def request_to(instance: Instance, path: str, body: object, request_id: str) -> LegRequest:
    """Return a POST of `body` to an instance, tagged as a probe.

    Raises UsageError for a key file or certificates that cannot be used.
    """
    if instance.url.startswith("https:"):
        tls_context(instance.ca_file)  # the process could only say that it failed
    key = api_key(instance.api_key_file)
    headers = {"Content-Type": "application/json", "X-Request-ID": request_id}
    return LegRequest(
        url=instance.url + path,
        body=msgspec.json.encode(body).decode(),
        headers=headers | ({"Authorization": f"Bearer {key}"} if key else {}),
        ca_file=instance.ca_file,
    )
