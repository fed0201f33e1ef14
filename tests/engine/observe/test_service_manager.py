"""What systemd hears of an instance."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from engine.observe.service_manager import ALIVE, READY, ServiceManager


@pytest.fixture
def listener(tmp_path: Path) -> socket.socket:
    """The socket that systemd would read."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    channel.bind(str(tmp_path / "notify"))
    channel.settimeout(5)
    return channel


def test_message_is_one_datagram(listener: socket.socket) -> None:
    """As sd_notify(3) sends it."""
    with listener:
        ServiceManager({"NOTIFY_SOCKET": listener.getsockname()}).tell(READY)
        assert listener.recv(100) == b"READY=1"


def test_keep_alive_comes_again_within_the_limit(listener: socket.socket) -> None:
    """Three within 30 ms; the limit is meant for this process."""
    environ = {"NOTIFY_SOCKET": listener.getsockname(), "WATCHDOG_USEC": "30000", "WATCHDOG_PID": str(os.getpid())}

    async def told() -> list[bytes]:
        telling = asyncio.create_task(ServiceManager(environ).keep_telling())
        heard = [await asyncio.to_thread(listener.recv, 100) for _ in range(3)]
        telling.cancel()
        return heard

    with listener:
        assert asyncio.run(told()) == [ALIVE.encode()] * 3


@pytest.mark.parametrize("environ", [{}, {"WATCHDOG_USEC": "30000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "x"}])
def test_without_a_limit_of_its_own_nothing_is_kept_up(environ: dict[str, str]) -> None:
    """Started by hand, or the limit is another process's."""
    asyncio.run(asyncio.wait_for(ServiceManager(environ).keep_telling(), 5))


def test_manager_that_is_gone_costs_nothing(tmp_path: Path) -> None:
    """Its socket is no reason to fail."""
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).tell(READY)
