"""The hosts of one run of pdctl, each connected once."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from pdctl.hosts.host import LOCAL, Host, LocalHost
from pdctl.hosts.remote import RemoteHost


class Hosts:
    """Gives the host of a name; close it, or use it in `with`, so that no connection stays."""

    def __init__(self) -> None:
        self._remote: dict[str, RemoteHost] = {}
        self._local = LocalHost()

    def of(self, name: str) -> Host:
        """Return a host as a deployment file writes it; nothing is connected yet. Raises UsageError."""
        return self._local if name == LOCAL else self.remote(name)

    def remote(self, name: str) -> RemoteHost:
        """Return a host that is not this machine. Raises UsageError for a name that is none."""
        if name not in self._remote:
            self._remote[name] = RemoteHost(name)
        return self._remote[name]

    def close(self) -> None:
        """End every connection."""
        for host in self._remote.values():
            host.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
