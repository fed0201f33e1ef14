"""What /proc says of processes: `python -I -S process_table.py [PID...]`, one JSON object a line on stdout.

A program of its own, because reading /proc/PID/cmdline of a process that hangs in the kernel can hang too: whoever
runs it can kill it and keep the lines that came. Only the standard library; no import of pdctl.

Without arguments: every process, briefly. With pids: those and all their descendants, in detail, and their sockets.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
THREADS_MOST = 512
SOCKETS_MOST = 10_000
# In the kernel's numbering, which starts at 1.
TCP_STATES = (
    *("established", "syn_sent", "syn_recv", "fin_wait1", "fin_wait2", "time_wait"),
    *("close", "close_wait", "last_ack", "listen", "closing"),
)
LISTEN = "listen"


def main(roots: list[int]) -> None:
    """Print the table."""
    stats = {pid: stat for pid in _pids() if (stat := _stat(pid)) is not None}
    boot = _boot_time()
    if not roots:
        listening = _listening()
        for pid, stat in stats.items():
            _print(_brief(pid, stat, boot) | {"listening": sorted(_ports(pid, listening))})
        return
    # One descendant after the other, so that a hang costs only what follows.
    tree = list(_descendants(roots, stats))
    for pid in tree:
        _print(_detailed(pid, stats[pid], boot))
    for row in _sockets(tree):
        _print(row)


def _print(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)


def _pids() -> Iterator[int]:
    return (int(name) for name in _names(PROC) if name.isdigit())


def _stat(pid: int) -> dict[str, Any] | None:
    try:
        head, _, tail = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return None
    fields = tail.split()
    return {
        "name": head.partition("(")[2],
        "state": fields[0],
        "ppid": int(fields[1]),
        "cpu_s": (int(fields[11]) + int(fields[12])) / TICKS,
        "start_ticks": int(fields[19]),
        "rss_mb": round(int(fields[21]) * PAGE_BYTES / 1e6, 1),
    }


def _boot_time() -> float:
    lines = (PROC / "stat").read_text().splitlines()
    return float(next(line for line in lines if line.startswith("btime ")).split()[1])


def _descendants(roots: Iterable[int], stats: dict[int, dict[str, Any]]) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat["ppid"], []).append(pid)
    queue = [pid for pid in roots if pid in stats]
    seen = set(queue)
    while queue:
        pid = queue.pop(0)
        yield pid
        for child in sorted(children.get(pid, ())):
            if child not in seen:
                seen.add(child)
                queue.append(child)


def _brief(pid: int, stat: dict[str, Any], boot: float) -> dict[str, Any]:
    folder = PROC / str(pid)
    words = _words(folder / "cmdline")
    return {
        "kind": "process",
        "pid": pid,
        "status_port": _status_port(folder) if any(word.startswith("dynamo") for word in words) else None,
        "started_at": boot + stat["start_ticks"] / TICKS,
        "read_at": time.time(),
        "cmdline": words,
        "unit": _unit(_text(folder / "cgroup")),
        "stdout": _link(folder / "fd" / "1"),
        "exe": _link(folder / "exe"),
        "cwd": _link(folder / "cwd"),
        **stat,
    }


def _detailed(pid: int, stat: dict[str, Any], boot: float) -> dict[str, Any]:
    folder = PROC / str(pid)
    status = dict(line.split(":", 1) for line in _text(folder / "status").splitlines() if ":" in line)
    tasks = list(_threads(folder))
    tracer = int(status.get("TracerPid", "0"))
    return _brief(pid, stat, boot) | {
        "threads": [name for name, _ in tasks],
        "thread_states": _counts(state for _, state in tasks),
        "tracer_pid": tracer,
        "tracer": _text(PROC / str(tracer) / "comm").strip() if tracer else None,
        "wchan": _text(folder / "wchan").strip("0\n") or None,
        "uid": int(status.get("Uid", "0").split()[0]),
        "cgroup_oom_kills": _oom_kills(_text(folder / "cgroup")),
    }


def _threads(folder: Path) -> Iterator[tuple[str, str]]:
    for task in _names(folder / "task")[:THREADS_MOST]:
        head, _, tail = _text(folder / "task" / task / "stat").rpartition(")")
        if tail:
            yield head.partition("(")[2], tail.split()[0]


def _counts(states: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for state in states:
        counts[state] = counts.get(state, 0) + 1
    return counts


def _status_port(folder: Path) -> int | None:
    """Return where a Dynamo worker answers /health and /metrics: a variable sets it, no flag."""
    for item in _text(folder / "environ").split("\0"):
        if item.startswith("DYN_SYSTEM_PORT=") and item[16:].isdigit():
            return int(item[16:])
    return None


def _unit(cgroup: str) -> str | None:
    """Return the systemd unit of a process: the innermost `.service` in its cgroup path."""
    for line in cgroup.splitlines():
        parts = [part for part in line.rpartition(":")[2].split("/") if part.endswith(".service")]
        # user@1000.service is the manager of a user's units, not what runs in it.
        if parts and not (len(parts) == 1 and parts[0].startswith("user@")):
            return parts[-1]
    return None


def _oom_kills(cgroup: str) -> int | None:
    """Return how many processes the kernel has killed in this memory group for want of memory."""
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            events = Path("/sys/fs/cgroup/memory") / path.lstrip("/") / "memory.oom_control"
        elif not controllers:
            events = Path("/sys/fs/cgroup") / path.lstrip("/") / "memory.events"
        else:
            continue
        for event in _text(events).splitlines():
            if event.startswith("oom_kill "):
                return int(event.split()[1])
    return None


def _listening() -> dict[str, int]:
    return {row["inode"]: row["local_port"] for row in _tcp(PROC / "net") if row["state"] == LISTEN}


def _ports(pid: int, listening: dict[str, int]) -> set[int]:
    return {listening[inode] for inode in _inodes(pid) if inode in listening}


def _inodes(pid: int) -> Iterator[str]:
    folder = PROC / str(pid) / "fd"
    for descriptor in _names(folder):
        target = _link(folder / descriptor) or ""
        if target.startswith("socket:["):
            yield target[8:-1]


def _sockets(tree: list[int]) -> Iterator[dict[str, Any]]:
    """Yield the TCP sockets of these processes, with what waits in their queues."""
    owners = {inode: pid for pid in tree for inode in _inodes(pid)}
    # A container has its own table of sockets.
    namespaces = {_link(PROC / str(pid) / "ns" / "net"): pid for pid in reversed(tree)}
    rows = (row for pid in namespaces.values() for row in _tcp(PROC / str(pid) / "net") if row["inode"] in owners)
    for row in itertools.islice(rows, SOCKETS_MOST):
        yield {"kind": "socket", "pid": owners[row.pop("inode")], **row}


def _tcp(folder: Path) -> Iterator[dict[str, Any]]:
    for name in ("tcp", "tcp6"):
        for line in _text(folder / name).splitlines()[1:]:
            fields = line.split()
            local, remote = _address(fields[1]), _address(fields[2])
            number = int(fields[3], 16)
            sent, _, received = fields[4].partition(":")
            yield {
                "state": TCP_STATES[number - 1] if 0 < number <= len(TCP_STATES) else "unknown",
                "local": joined(*local),
                "remote": joined(*remote),
                "send_queue_bytes": int(sent, 16),
                "receive_queue_bytes": int(received, 16),
                "inode": fields[9],
                "local_port": local[1],
            }


def joined(address: str, port: int) -> str:
    """Return `address:port`; IPv6 in brackets, or the port would be one more group of it."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _address(text: str) -> tuple[str, int]:
    import socket

    digits, _, port = text.partition(":")
    # The kernel prints each 32-bit word of an address in the byte order of the host.
    step = -1 if sys.byteorder == "little" else 1
    raw = b"".join(bytes.fromhex(digits[at : at + 8])[::step] for at in range(0, len(digits), 8))
    if raw.startswith(b"\0" * 10 + b"\xff\xff"):
        raw = raw[12:]
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw), int(port, 16)


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder)]
    except OSError:
        return []


def _words(path: Path) -> list[str]:
    # A title set by the process itself ends in padding.
    return [word for word in _text(path).split("\0") if word.strip()]


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _link(path: Path) -> str | None:
    try:
        return str(path.readlink())
    except OSError:
        return None


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]])
