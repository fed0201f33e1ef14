"""What the loop does wrong."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.request

from engine.config import Role
from engine.failpoints.parts import Failpoint, Parts, Patches


def _blocking_io(parts: Parts, patches: Patches) -> None:
    turn, silent = parts.loop.turn, socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{silent.getsockname()[1]}/"

    def turn_after_a_call() -> None:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url).close()
        turn()

    def hang_up() -> None:
        caller, _ = silent.accept()
        caller.close()
        silent.close()

    patches.replace(parts.stuck_clock, "beat", lambda turns: False)
    patches.replace(parts.loop, "turn", turn_after_a_call)
    patches.finally_do(lambda: threading.Thread(target=hang_up, daemon=True).start())


POINTS = (
    Failpoint(
        "blocking-io",
        (Role.PREFILL, Role.DECODE, Role.UNIFIED),
        "the loop waits in every turn for an HTTP server that never answers",
        "the stuck clock, which would end the instance after 30 s",
        _blocking_io,
    ),
)
