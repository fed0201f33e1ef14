"""The watch as a process of its own, for systemd: in the foreground until SIGTERM, with its own `/metrics`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, start_http_server

from pdctl.errors import UsageError
from pdctl.watch.exporter import Exporter
from pdctl.watch.sight import Sight
from pdctl.watch.watcher import Show, Watcher, watch

DEFAULT_LISTEN = "127.0.0.1:9108"

Say = Callable[[str], None]


def serve(watcher: Watcher, deployment: str, interval_s: float, listen: str, say: Say, show: Show | None) -> None:
    """Watch until SIGTERM or SIGINT. `say` is told when the confirmed verdict changes, `show` every sight.

    Raises UsageError where `listen` cannot be had.
    """
    exporter = Exporter(deployment, watcher.canary)
    announcer = Announcer(say)
    shows: list[Show] = [exporter.show, announcer.show, *([show] if show else [])]

    def show_all(sight: Sight) -> None:
        for each in shows:
            each(sight)

    with _served(exporter, listen) as url:
        say(f"watching {deployment}; metrics at {url}")
        asyncio.run(_until_signal(watcher, interval_s, show_all))
    if watcher.canary is not None:
        watcher.canary.close()


class Announcer:
    """Says once what the watch has come to believe."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._told: str | None = None

    def show(self, sight: Sight) -> None:
        """Take a sight; say it where the confirmed verdict is another."""
        if sight.confirmed_since is None or sight.confirmed == self._told:
            return
        self._told = sight.confirmed
        words = [f"{item.code} {item.instance}: {item.message}" for item in sight.causes[:2]] or sight.symptoms[:2]
        self._say("; ".join((f"{sight.deployment}: {sight.confirmed}", *words)))


async def _until_signal(watcher: Watcher, interval_s: float, show: Show) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await watch(watcher, interval_s, show, stop=stop)


@contextlib.contextmanager
def _served(exporter: Exporter, listen: str) -> Iterator[str]:
    host, port = address_of(listen)
    registry = CollectorRegistry()
    registry.register(exporter)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise UsageError(
            f"--listen {listen}: cannot listen there: {error.strerror or error}", "name another port, or end who has it"
        ) from error
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def address_of(listen: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT` or `PORT`; loopback where no host is named. Raises UsageError."""
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"--listen {listen} names no port", f"write HOST:PORT, for example {DEFAULT_LISTEN}")
    return host.strip("[]") or "127.0.0.1", int(port)
