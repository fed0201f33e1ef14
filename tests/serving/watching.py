"""A `pdctl watch --daemon` on a real pair, as a process."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pdctl.deployment.files import save
from pdctl.deployment.model import Deployment
from tests.cli.pdctl_process import start
from tests.ports import free_port


class Watching:
    """What a running daemon says, sight by sight."""

    def __init__(self, sights: queue.SimpleQueue[dict[str, Any]], url: str) -> None:
        self._sights = sights
        self.url = url
        self.seen: list[dict[str, Any]] = []

    def until(self, is_so: Callable[[dict[str, Any]], bool], within_s: float) -> dict[str, Any]:
        """Return the first sight from now on that is so; fails with the last one."""
        ends_at = time.monotonic() + within_s
        while (left_s := ends_at - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                self.seen.append(self._sights.get(timeout=left_s))
                if is_so(self.seen[-1]):
                    return self.seen[-1]
        raise AssertionError(f"not within {within_s} s; the last sight: {self.seen[-1:]}")


@contextlib.contextmanager
def watched(home: Path, deployment: Deployment, *flags: str) -> Iterator[Watching]:
    """Run the daemon; it has to end well by SIGTERM."""
    file = home / "watched.toml"
    save(deployment, file)
    address = f"127.0.0.1:{free_port()}"
    process = start(home, "watch", "--daemon", "--file", str(file), "--listen", address, "-o", "json", *flags)
    sights: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    assert process.stdout is not None
    lines = process.stdout
    reader = threading.Thread(target=lambda: [sights.put(json.loads(line)) for line in lines], daemon=True)
    reader.start()
    try:
        yield Watching(sights, f"http://{address}/metrics")
    finally:
        process.send_signal(signal.SIGTERM)
        with process:
            code = process.wait(20)
            reader.join(5)
    assert code == 0
