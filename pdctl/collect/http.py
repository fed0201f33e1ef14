"""Ask one instance over HTTP. What goes wrong is an outcome, never an exception.

Proxy variables are ignored and redirects are not followed: an engine is asked itself, or not at all.
"""

from __future__ import annotations

import socket
import ssl
import time
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from pdctl.collect.credentials import api_key
from pdctl.deployment.model import Instance
from pdctl.errors import UsageError

if TYPE_CHECKING:
    import httpx


class Outcome(StrEnum):
    """How an exchange ended. Each calls for another next step, so they are kept apart."""

    ANSWERED = "answered"
    REFUSED = "refused"
    """Nobody listens there: the process is gone or not up yet."""
    TIMEOUT = "timeout"
    """Somebody may listen, but nothing came in time: frozen, hung, or cut off."""
    RESET = "reset"
    """The connection broke before the answer was whole: the process died or dropped it."""
    DNS = "dns"
    UNREACHABLE = "unreachable"
    """No route to the host or network."""
    TLS = "tls"
    TOO_LARGE = "too_large"
    GARBLED = "garbled"
    """What came back is not HTTP."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds for each kind of waiting, and `total_s` for all of it together."""

    connect_s: float = 2.0
    read_s: float = 5.0
    write_s: float = 5.0
    pool_s: float = 2.0
    total_s: float = 10.0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange. `status`, `body` and `headers` are empty unless something was answered."""

    method: str
    url: str
    outcome: Outcome
    status: int | None = None
    body: bytes = b""
    headers: dict[str, str] = {}
    took_ms: float
    error: str | None = None
    """The words of the lower layer."""

    @property
    def ok(self) -> bool:
        """Return whether the whole answer came, with a 2xx status."""
        return self.outcome is Outcome.ANSWERED and self.status is not None and 200 <= self.status < 300

    def describe(self) -> str:
        """Return what happened in a few words, for a message: `GET URL: refused`."""
        what = f"HTTP {self.status}" if self.outcome is Outcome.ANSWERED else str(self.outcome)
        waited = f" after {self.took_ms / 1000:.1f} s" if self.outcome is Outcome.TIMEOUT else ""
        return f"{self.method} {self.url}: {what}{waited}"


MAX_BODY_BYTES = 16 * 1024 * 1024


class InstanceClient:
    """Asks one base URL. Close it, or use it in `with`. Safe to use from several threads."""

    def __init__(
        self,
        base_url: str,
        *,
        key: str | None = None,
        ca_file: str | None = None,
        timeouts: Timeouts | None = None,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        """Raise UsageError when `ca_file` cannot be used."""
        import httpx

        self.base_url = base_url.rstrip("/")
        self.timeouts = timeouts or Timeouts()
        self._max_body_bytes = max_body_bytes
        self._client = httpx.Client(
            trust_env=False,
            verify=tls_context(ca_file) if base_url.startswith("https:") else False,
            headers={"Authorization": f"Bearer {key}"} if key else {},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def get(self, path: str) -> Answer:
        """GET a path of this instance."""
        return self._exchange("GET", path, None, {}, self.timeouts)

    def post(
        self, path: str, body: object, headers: dict[str, str] | None = None, wait_s: float | None = None
    ) -> Answer:
        """POST `body` as JSON to a path of this instance; `wait_s` replaces the read and total timeouts."""
        timeouts = self.timeouts
        if wait_s is not None:
            timeouts = msgspec.structs.replace(timeouts, read_s=wait_s, total_s=wait_s)
        return self._exchange("POST", path, msgspec.json.encode(body), headers or {}, timeouts)

    def _exchange(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str], timeouts: Timeouts
    ) -> Answer:
        import httpx

        url = self.base_url + path
        started = time.monotonic()
        sent_headers = {"Content-Type": "application/json", **headers} if content is not None else headers
        limits = httpx.Timeout(
            connect=timeouts.connect_s, read=timeouts.read_s, write=timeouts.write_s, pool=timeouts.pool_s
        )
        try:
            with self._client.stream(method, url, content=content, headers=sent_headers, timeout=limits) as response:
                body, outcome = self._read(response, started + timeouts.total_s)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            took_ms = _since(started)
            return Answer(method=method, url=url, outcome=outcome_of(error), took_ms=took_ms, error=str(error))
        return Answer(
            method=method,
            url=url,
            outcome=outcome,
            status=response.status_code,
            body=body,
            headers=dict(response.headers),
            took_ms=_since(started),
        )

    def _read(self, response: httpx.Response, deadline: float) -> tuple[bytes, Outcome]:
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > self._max_body_bytes:
                return bytes(body[: self._max_body_bytes]), Outcome.TOO_LARGE
            # The read timeout is per piece; an instance that drips would keep us here for ever.
            if time.monotonic() > deadline:
                return bytes(body), Outcome.TIMEOUT
        return bytes(body), Outcome.ANSWERED


def client_for(instance: Instance, timeouts: Timeouts | None = None) -> InstanceClient:
    """Return a client with the instance's own key and certificate authority. Raises UsageError."""
    return InstanceClient(instance.url, key=api_key(instance.api_key_file), ca_file=instance.ca_file, timeouts=timeouts)


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return a verifying context; `ca_file` replaces the system's authorities. Raises UsageError."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"cannot use ca_file {ca_file}: {error}", "give a readable file of PEM certificates"
        ) from error


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome behind an exception of httpx or of the operating system.

    The innermost cause decides: httpx wraps refusals, name errors and bad certificates in one class.
    """
    import httpx

    chain = list(_causes(error))
    for kinds, outcome in (
        ((ConnectionRefusedError,), Outcome.REFUSED),
        ((socket.gaierror,), Outcome.DNS),
        ((ssl.SSLError,), Outcome.TLS),
        ((httpx.TimeoutException, TimeoutError), Outcome.TIMEOUT),
        ((ConnectionResetError, BrokenPipeError, httpx.ReadError, httpx.WriteError), Outcome.RESET),
        ((httpx.RemoteProtocolError,), _protocol_outcome(error)),
        ((httpx.ConnectError, OSError), Outcome.UNREACHABLE),
    ):
        if any(isinstance(cause, kinds) for cause in chain):
            return outcome
    return Outcome.GARBLED


def _protocol_outcome(error: BaseException) -> Outcome:
    # h11 reports an early end and a line that is no HTTP in one class; only the words differ.
    return Outcome.RESET if "disconnected" in str(error) or "without sending" in str(error) else Outcome.GARBLED


def _causes(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return chain


def _since(started: float) -> float:
    return round((time.monotonic() - started) * 1000, 3)
