"""The ledger's copies on other hosts: it lives with the processes, so whoever comes from elsewhere sees it too."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

import msgspec

from pdctl.deployment.model import Deployment
from pdctl.deployment.state import StateFolder
from pdctl.errors import PdctlError
from pdctl.hosts.host import LOCAL, Host
from pdctl.hosts.hosts import Hosts
from pdctl.recover.ledger import FILE, Entry, Ledger, Recovery, Step, parse

ASK_S = 10.0
MOST_BYTES = 64 << 20
_STOPS_NOTHING_YET = (Step.PLANNED, Step.SNAPSHOT, Step.ABORTING, Step.HANDED_OVER, Step.TAKEN_OVER, Step.STOPPING)


class MirroredLedger(Ledger):
    """The ledger here, and its copies on other hosts."""

    def __init__(self, folder: StateFolder, hosts: Sequence[Host], say: Callable[[str], None]) -> None:
        super().__init__(folder.folder)
        self._place = state_folder(folder.name)
        self._hosts = tuple(hosts)
        self._say = say

    def append(self, entry: Entry) -> None:
        """Put one line on every disk, on ours last: what stands here stands everywhere.

        Raises PdctlError when it is not there for certain; once something was stopped, a host that cannot be reached
        is only told, as going on is safer.
        """
        file = f"{self._place}/{FILE}"
        script = f"umask 077; mkdir -p {self._place} && cat >> {file} && sync {file}"
        for host in self._hosts:
            # An empty line before: a torn one must not spoil ours.
            line = b"\n" + msgspec.json.encode(entry) + b"\n"
            done = host.run_now(["sh", "-c", script], deadline_s=ASK_S, most_bytes=1 << 10, stdin=line)
            if done.ok:
                continue
            problem = f"cannot write {entry.step!r} to the ledger of {host.name}: {done.describe()}"
            if entry.step in _STOPS_NOTHING_YET:
                raise PdctlError(problem, "nothing was stopped; make that host reachable and its disk writable")
            self._say(problem)
        super().append(entry)


def everybodys(
    folder: StateFolder, deployment: Deployment, hosts: Hosts, say: Callable[[str], None]
) -> tuple[Recovery, ...]:
    """Return every recovery that the ledger here knows or one where units run, oldest first; `say` what is unread."""
    known = {recovery.id: recovery for recovery in Ledger(folder.folder).recoveries()}
    units = (item.host for item in deployment.instances if item.manager == "systemd" and item.host != LOCAL)
    script = f"cat {state_folder(deployment.name)}/{FILE} 2>/dev/null || true"
    for name in dict.fromkeys(units):
        done = hosts.of(name).run_now(["sh", "-c", script], deadline_s=ASK_S, most_bytes=MOST_BYTES)
        if not done.ok:
            say(f"the ledger of {name} was not read: {done.describe()}")
        for recovery in parse(done.stdout):
            mine = known.get(recovery.id)
            # Where a guard has ended it there, nobody here knows.
            if mine is None or len(mine.entries) < len(recovery.entries):
                known[recovery.id] = recovery
    return tuple(sorted(known.values(), key=lambda recovery: recovery.entries[0].at))


def state_folder(name: str) -> str:
    """Return a deployment's state folder on any host, as a word of `sh`."""
    return f'"${{XDG_STATE_HOME:-$HOME/.local/state}}"/pdctl/{shlex.quote(name)}'
