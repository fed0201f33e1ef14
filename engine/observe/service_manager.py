"""Tell systemd that this instance is up and lives: sd_notify(3), one datagram a message.

Without `NOTIFY_SOCKET` in the environment there is nobody to tell, and nothing happens. The keep-alive comes from the
event loop of the API process: a hung API is what systemd restarts for. A hung scheduler step is the engine's own
watchdog's to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


class ServiceManager:
    """Whoever started this process and wants to hear of it, if anybody does."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        # An abstract socket is written with `@` for the null byte.
        self._address = "\0" + path[1:] if path.startswith("@") else path
        is_meant = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environ.get("WATCHDOG_USEC", "") if is_meant else ""
        self._limit_s = int(microseconds) / 1e6 if microseconds.isdigit() else None

    def tell(self, message: str) -> None:
        """Send one message; a manager that does not listen is no fault of ours."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(message.encode(), self._address)

    async def keep_telling(self) -> None:
        """Say that we live, three times within the limit that we were given; return at once without one."""
        while self._limit_s is not None:
            self.tell(ALIVE)
            await asyncio.sleep(self._limit_s / 3)
