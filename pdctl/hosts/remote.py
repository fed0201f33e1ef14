"""Another host, behind a command that runs `sh` there: ssh, or whatever the deployment file names."""

from __future__ import annotations

import asyncio
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError

from pdctl.errors import UsageError
from pdctl.hosts.child import Child, End, Keep
from pdctl.hosts.host import Clock
from pdctl.hosts.session import Session

WAY_S = 0.3
"""Of a command's deadline, for the way there and back."""
AGAIN_S = 2.0
"""A host that was lost is asked again after this time, not at every command."""
SSH = (
    *("ssh", "-T", "-a", "-x"),
    *("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ClearAllForwardings=yes"),
    *("-o", "PermitLocalCommand=no", "-o", "ConnectTimeout=8"),
    # A cut line is noticed within 15 s, also by a recovery that waits.
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
    # A master that the operator has opened is used; none is made, so none can be left behind.
    *("-o", "ControlMaster=no"),
)


def argv_of(name: str) -> tuple[str, ...]:
    """Return what runs `sh` on a host of a deployment file: `ssh:NAME` or `exec:COMMAND`. Raises UsageError."""
    kind, _, place = name.partition(":")
    if kind == "ssh":
        # A name that begins with `-` would be an option of ssh, ProxyCommand among them.
        if not place or place.startswith("-") or any(character.isspace() for character in place):
            raise UsageError(f"host {name!r} names no host that ssh could reach", "write ssh:NAME or ssh:USER@NAME")
        return (*SSH, "--", place, "sh")
    try:
        words = shlex.split(place) if kind == "exec" else []
    except ValueError as error:
        raise UsageError(f"host {name!r} is no command: {error}", "close its quotes") from error
    if not words:
        raise UsageError(f"host {name!r} is not known", "write local, ssh:NAME or exec:COMMAND")
    return (*words, "sh")


class RemoteHost:
    """A host that one session at a time connects; a lost one is opened anew."""

    python = "python3"

    def __init__(self, name: str) -> None:
        """Raise UsageError for a name that is none; connect at the first command."""
        self.name = name
        self._argv = argv_of(name)
        self._lock = threading.Lock()
        self._session: Session | None = None

    @property
    def clock(self) -> Clock | None:
        """Return its clock, None before a session was open."""
        return self._session.clock if self._session is not None else None

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        most_bytes: int,
        keep: Keep = Keep.HEAD,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Child:
        """Run it there; cancelled, it is killed there."""
        session = self._open_session()
        number, outcome = session.submit(
            argv, deadline_s=_there(deadline_s), most_bytes=most_bytes, keep=keep, stdin=stdin, env=env
        )
        return await self._outcome(session, number, outcome, argv, deadline_s)

    async def exchange(self, address: str, port: int, data: bytes, *, deadline_s: float, most_bytes: int) -> Child:
        """Send bytes to a port that only this host can reach, and return what comes until the other side closes.

        Of a Child that `exited`, `code` is the errno of what failed, 0 for nothing.
        """
        session = self._open_session()
        number, outcome = session.exchange(address, port, data, deadline_s=_there(deadline_s), most_bytes=most_bytes)
        return await self._outcome(session, number, outcome, (f"{address}:{port}",), deadline_s)

    async def _outcome(
        self, session: Session, number: int, outcome: Future[Child], argv: Sequence[str], deadline_s: float
    ) -> Child:
        try:
            return await asyncio.wait_for(asyncio.wrap_future(outcome), deadline_s)
        except TimeoutError:
            session.cancel(number)
            return self._silent(argv, deadline_s)
        except asyncio.CancelledError:
            session.cancel(number)
            raise

    def run_now(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        most_bytes: int,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> Child:
        """Do the same without an event loop."""
        session = self._open_session()
        number, outcome = session.submit(
            argv, deadline_s=_there(deadline_s), most_bytes=most_bytes, keep=Keep.HEAD, stdin=stdin, env=env
        )
        try:
            return outcome.result(deadline_s)
        except FutureTimeoutError:
            session.cancel(number)
            return self._silent(argv, deadline_s)

    def close(self) -> None:
        """End the session and all that it runs there."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def _open_session(self) -> Session:
        with self._lock:
            session = self._session
            is_lost = session is not None and session.problem is not None
            if session is None or (is_lost and time.monotonic() - session.ended_at >= AGAIN_S):
                session = self._session = Session(self.name, self._argv)
            return session

    def _silent(self, argv: Sequence[str], deadline_s: float) -> Child:
        words = f"{self.name} did not answer within {deadline_s:.1f} s"
        return Child(argv=tuple(argv), end=End.TIMEOUT, stderr=words, took_ms=1000 * deadline_s, truncated=True)


def _there(deadline_s: float) -> float:
    """Return what is left of a deadline for the command itself."""
    return max(deadline_s - WAY_S, deadline_s / 2)
