"""The guards of a recovery: one on each other host before the first signal, and signs of life for it.

Should this machine vanish half way, each of those hosts starts what was stopped on it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from pdctl.errors import Refused
from pdctl.hosts.host import LOCAL, Host
from pdctl.hosts.hosts import Hosts
from pdctl.recover import guard_process
from pdctl.recover.ledger import operator
from pdctl.recover.ledgers import state_folder
from pdctl.recover.plan import Plan

PATIENCE_S = 30.0
"""How long a host waits for a sign of life after a stop."""
BEAT_S = 5.0
ASK_S = 10.0


class Guards:
    """The guards of one plan."""

    def __init__(self, plan: Plan, hosts: Hosts) -> None:
        self._plan = plan
        self._hosts = [hosts.of(name) for name in hosts_of(plan)]

    @contextmanager
    def armed(self, say: Callable[[str], None], *, is_past_stop: bool = False) -> Iterator[None]:
        """Arm them all, and give signs of life within the block.

        Raises Refused where somebody else works or no guard can be left, while nothing was stopped yet; afterwards
        the only safe direction is forward, and it is said.
        """
        for host in self._hosts:
            try:
                self._arm(host)
            except Refused as refused:
                if not is_past_stop:
                    raise
                say(refused.message)
        over = threading.Event()
        beats = [threading.Thread(target=self._beat, args=(host, over), daemon=True) for host in self._hosts]
        for beat in beats:
            beat.start()
        try:
            yield
        finally:
            over.set()

    def _arm(self, host: Host) -> None:
        targets = [
            {"instance": target.name, "unit": target.instance.unit}
            for target in self._plan.targets
            if target.instance.host == host.name
        ]
        order = {
            "recovery": self._plan.id,
            "by": operator(),
            "patience_s": PATIENCE_S,
            "drain_s": self._plan.drain_s,
            "targets": targets,
        }
        program = Path(guard_process.__file__).read_text(encoding="utf-8")
        argv = [host.python, "-I", "-S", "-c", program, self._plan.deployment.name]
        done = host.run_now(argv, deadline_s=ASK_S, most_bytes=1 << 16, stdin=msgspec.json.encode(order))
        if done.code == guard_process.BUSY:
            who = done.stdout.decode("utf-8", "replace").strip()
            raise Refused(f"{who} is recovering {self._plan.deployment.name!r} on {host.name}; nothing was changed")
        if not done.ok:
            raise Refused(f"no guard could be left on {host.name}, so nothing was stopped: {done.describe()}")

    def _beat(self, host: Host, over: threading.Event) -> None:
        path = f"{state_folder(self._plan.deployment.name)}/recoveries/{self._plan.id}/beat"
        while not over.wait(BEAT_S):
            host.run_now(["sh", "-c", f"touch -- {path}"], deadline_s=BEAT_S, most_bytes=1 << 10)


def hosts_of(plan: Plan) -> tuple[str, ...]:
    """Return the other hosts on which pdctl itself stops something."""
    managed = (target.instance for target in plan.targets if target.instance.manager == "systemd")
    return tuple(dict.fromkeys(instance.host for instance in managed if instance.host != LOCAL))
