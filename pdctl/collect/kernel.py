"""Collector: what this host's kernel said of memory, devices and hung tasks. Once a host, kept with each instance."""

from __future__ import annotations

import re

from pdctl.collect.context import Context
from pdctl.collect.records import Status, Taken
from pdctl.hosts import child

NAME = "kernel.txt"
KERNEL_S = 5.0
OUTPUT_MOST_BYTES = 16 << 20
KEPT_BYTES = 256 << 10
TELLING = re.compile(
    rb"Out of memory|oom-kill|oom_reaper|invoked oom-killer|OOM|Xid|NVRM|nvidia|blocked for more than|segfault|"
    rb"general protection|traps:|soft lockup|hard LOCKUP|Hardware Error|mlx5|link (?:is )?(?:down|up)|I/O error|"
    rb"No space left",
    re.I,
)
_KILLED = re.compile(rb"Killed process (\d+)")


async def take(context: Context) -> Taken:
    """Read the kernel's messages: the ring by `dmesg`, else the journal's."""
    # LC_ALL: names of months are read by a program.
    env = {"LC_ALL": "C"}
    attempts = (("dmesg", "-T"), ("journalctl", "-q", "--no-pager", "-k", "-b", "-o", "short", "-n", "20000"))
    problems: list[str] = []
    status = Status.ABSENT
    for argv in attempts:
        done = await context.host.run(
            argv,
            deadline_s=context.deadline.at_most(KERNEL_S),
            most_bytes=OUTPUT_MOST_BYTES,
            keep=child.Keep.TAIL,
            env=env,
        )
        if done.ok:
            return Taken(name=NAME, content=telling_lines(done.stdout), truncated=done.truncated, took_ms=done.took_ms)
        problems.append(done.describe())
        status = _worse(status, done)
    error = f"{'; '.join(problems)}; run pdctl as root, or read `dmesg -T` on the host"
    return Taken(name=NAME, status=status, error=error)


def telling_lines(output: bytes) -> bytes:
    """Return the lines about memory, devices and faults, the last of them where they are many."""
    kept = b"".join(line + b"\n" for line in output.splitlines() if TELLING.search(line))
    if len(kept) <= KEPT_BYTES:
        return kept
    kept = kept[-KEPT_BYTES:]
    return kept[kept.find(b"\n") + 1 :]


def killed_for_memory(content: bytes) -> frozenset[int]:
    """Return the pids that the kernel says it killed for want of memory."""
    return frozenset(int(pid) for pid in _KILLED.findall(content))


def _worse(status: Status, done: child.Child) -> Status:
    if "not permitted" in done.stderr or "ermission denied" in done.stderr:
        return Status.DENIED
    if done.end is child.End.TIMEOUT:
        return Status.TIMEOUT
    return status if done.end is child.End.MISSING or status is Status.DENIED else Status.FAILED
