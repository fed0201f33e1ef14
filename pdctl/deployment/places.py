"""Which addresses are the same place: names and IP addresses of one engine, held against each other."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable

from pdctl.deployment.layout import LOOPBACK
from pdctl.evidence.urls import host_of, port_of

RESOLVE_S = 2.0
"""For all names together; one that is not known by then is itself only."""
_MOST_THREADS = 16
Resolve = Callable[[str], Collection[str]]
"""The name of a host -> its IP addresses; raises OSError or ValueError."""
_HERE = (*LOOPBACK, "0.0.0.0", "::")


def system_resolver(name: str) -> Collection[str]:
    """Ask the system for the IP addresses of a name. May take as long as its name servers let it."""
    return {str(row[4][0]) for row in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}


class Places:
    """The places of some URLs. Names are looked up once, at most `RESOLVE_S`, and raise nothing."""

    def __init__(self, urls: Iterable[str], resolve: Resolve = system_resolver, deadline_s: float = RESOLVE_S) -> None:
        names = sorted({host for url in urls if (host := host_of(url)) and host not in _HERE and not _is_ip(host)})
        self._known: dict[str, frozenset[str]] = {}
        until = time.monotonic() + deadline_s
        shares = [names[start::_MOST_THREADS] for start in range(min(len(names), _MOST_THREADS))]
        # Daemons: a name server that never answers must not hold up the end of pdctl.
        threads = [
            threading.Thread(target=self._look_up, args=(share, resolve, until), daemon=True) for share in shares
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def are_same(self, one: str, other: str) -> bool:
        """Return whether two URLs lead to one port of one host."""
        return _port(one) == _port(other) and bool(self._hosts(one) & self._hosts(other))

    def first_same(self, url: str, others: Iterable[str]) -> str | None:
        """Return the one among other URLs that leads to the same place: the URL itself, if it is there."""
        others = tuple(others)
        return url if url in others else next((other for other in others if self.are_same(url, other)), None)

    def _look_up(self, names: Iterable[str], resolve: Resolve, until: float) -> None:
        for name in names:
            if time.monotonic() > until:
                return
            with contextlib.suppress(OSError, ValueError):
                found = [ipaddress.ip_address(text.partition("%")[0]) for text in resolve(name)]
                # A name of several hosts is a service: no one of them is it.
                if all(sum(item.version == version for item in found) <= 1 for version in (4, 6)):
                    self._known[name] = frozenset(_spelt(str(item)) for item in found)

    def _hosts(self, url: str) -> frozenset[str]:
        host = host_of(url)
        return frozenset({_spelt(host)} - {""}) | self._known.get(host, frozenset())


def _spelt(host: str) -> str:
    if host in _HERE:
        return LOOPBACK[0]
    return str(ipaddress.ip_address(host)) if _is_ip(host) else host


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _port(url: str) -> int:
    return port_of(url) or (443 if url.startswith("https:") else 80)
