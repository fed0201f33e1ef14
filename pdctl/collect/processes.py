"""Collector: the process tree of one instance, its sockets and its manager, as the operating system sees them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from pdctl.collect import kernel
from pdctl.collect.context import Context
from pdctl.collect.host_facts import HostFacts
from pdctl.collect.host_processes import ProcessRow, SocketRow, Table
from pdctl.collect.records import Status, Taken
from pdctl.collect.target import Target
from pdctl.evidence import toml_text
from pdctl.evidence.credentials import argv_without
from pdctl.hosts import child

FILES = ("process.toml", "sockets.toml", "unit.toml")
DEADLINE_S = 5.0
SOCKETS_MOST = 200
UNIT_PROPERTIES = {
    "ActiveState": "active_state",
    "SubState": "sub_state",
    "Result": "result",
    "NRestarts": "restarts",
    "InvocationID": "invocation_id",
    "NeedDaemonReload": "need_daemon_reload",
    "ExecMainStatus": "exit_status",
    "ExecMainCode": "exit_kind",
}


async def take(target: Target, context: Context, host: HostFacts, after: Table) -> list[Taken]:
    """Return the tree as it is in `after`; shares of CPU are since the table of `host`."""
    unit = await _unit(target, context)
    if target.pid is None:
        return [*_ended(target, host), *unit]
    tree = after.tree(target.pid)
    if not tree and after.problem is None:
        return [*_died_meanwhile(target.pid, target, host), *unit]
    if not tree:
        status = Status.TIMEOUT if after.timed_out else Status.FAILED
        return [*(Taken(name=name, status=status, error=after.problem) for name in FILES[:2]), *unit]
    rows = [_row(row, host, target) for row in tree]
    pids = {row.pid for row in tree}
    sockets = [_socket(row) for row in after.sockets if row.pid in pids][:SOCKETS_MOST]
    # Half a tree is still evidence, but nothing may be concluded from what it lacks.
    status = Status.OK if after.problem is None else Status.TIMEOUT
    return [
        Taken(name=FILES[0], content=toml_text.document({}, {"process": rows}), status=status, error=after.problem),
        Taken(name=FILES[1], content=toml_text.document({}, {"socket": sockets}), status=status, error=after.problem),
        *unit,
    ]


def _socket(row: SocketRow) -> dict[str, object]:
    return {
        "pid": row.pid,
        "state": row.state,
        "local": row.local,
        "remote": row.remote,
        "send_queue_bytes": row.send_queue_bytes,
        "receive_queue_bytes": row.receive_queue_bytes,
    }


def _row(row: ProcessRow, host: HostFacts, target: Target) -> dict[str, object]:
    is_root = row.pid == target.pid
    return {
        "pid": row.pid,
        "ppid": row.ppid,
        "name": row.name,
        "title": row.title,
        "rank": row.rank or None,
        "state": {"t": "T", "I": "S", "X": "gone"}.get(row.state, row.state),
        "started_at": row.began,
        "restarts": target.record.restarts if is_root and target.record else None,
        "cpu_percent": _cpu_percent(host.table.of(row.pid), row),
        "rss_mb": row.rss_mb,
        "cmdline": argv_without(row.cmdline),
        "threads": row.threads,
        "thread_states": row.thread_states,
        "tracer_pid": row.tracer_pid or None,
        "tracer": row.tracer,
        "wchan": row.wchan,
        "unit": row.unit,
        "cgroup_oom_kills": row.cgroup_oom_kills,
    }


def _cpu_percent(earlier: ProcessRow | None, row: ProcessRow) -> float | None:
    """Return the share of one core between two looks, None where the first is missing or of another process."""
    if earlier is None or earlier.start_ticks != row.start_ticks or row.read_at <= earlier.read_at:
        return None
    return round(100 * (row.cpu_s - earlier.cpu_s) / (row.read_at - earlier.read_at), 1)


def _ended(target: Target, host: HostFacts) -> list[Taken]:
    """Return what is known of an instance without a process: how its last one ended, or only that it did."""
    record, last = target.record, target.last
    if last is not None:
        seen = {"pid": last.pid, "title": last.title, "state": "gone", "started_at": _utc(last.started_at)}
        seen |= {"cmdline": last.cmdline, "oom_killed": _is_killed_for_memory(last.pid, host)}
        return _gone(seen, target.why_no_pid)
    if record is None:
        return [Taken(name=name, status=Status.ABSENT, error=target.why_no_pid) for name in FILES[:2]]
    started, ended = _utc(record.started_at), _utc(record.ended_at)
    row: dict[str, Any] = {
        "pid": record.pid,
        "title": " ".join(argv_without(record.argv[:3])),
        "state": "gone",
        "started_at": started,
        "ended_at": ended,
        "exit_code": record.exit_code,
        "signal": record.signal,
        "oom_killed": _is_killed_for_memory(record.pid, host),
        "restarts": record.restarts,
        "stopped_on_purpose": record.stopped_on_purpose,
        "cmdline": argv_without(record.argv),
        "error": record.error,
    }
    return _gone(row, target.why_no_pid)


def _died_meanwhile(pid: int, target: Target, host: HostFacts) -> list[Taken]:
    """Return what is known of a process that the first look showed and the second, just now, does not."""
    row, record = host.table.of(pid), target.record
    died: dict[str, Any] = {
        "pid": pid,
        "state": "gone",
        "ended_at": datetime.now(UTC),
        "oom_killed": _is_killed_for_memory(pid, host),
        "restarts": record.restarts if record else None,
    }
    if row is not None:
        died |= {"title": row.title, "started_at": row.began, "cmdline": argv_without(row.cmdline)}
    return _gone(died, f"pid {pid} ended between two looks")


def _gone(row: dict[str, Any], why: str) -> list[Taken]:
    return [
        Taken(name=FILES[0], content=toml_text.document({}, {"process": [row]})),
        Taken(name=FILES[1], status=Status.ABSENT, error=why),
    ]


def _is_killed_for_memory(pid: int | None, host: HostFacts) -> bool | None:
    return True if pid in kernel.killed_for_memory(host.kernel.content or b"") else None


def _utc(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


async def _unit(target: Target, context: Context) -> list[Taken]:
    if target.record is not None:
        facts: dict[str, object] = {
            "manager": "shim",
            "active_state": target.record.state,
            "restarts": target.record.restarts,
            "shim_pid": target.record.shim_pid,
        }
        return [Taken(name=FILES[2], content=toml_text.document(facts))]
    if target.unit is None:
        return [Taken(name=FILES[2], status=Status.ABSENT, error="neither a systemd unit nor pdctl runs it here")]
    argv = ["systemctl", "show", target.unit, f"--property={','.join(UNIT_PROPERTIES)}"]
    done = await context.host.run(argv, deadline_s=context.deadline.at_most(DEADLINE_S), most_bytes=1 << 20)
    if not done.ok:
        status = Status.TIMEOUT if done.end is child.End.TIMEOUT else Status.FAILED
        return [Taken(name=FILES[2], status=status, error=done.describe())]
    return [Taken(name=FILES[2], content=toml_text.document(unit_facts(target.unit, done.stdout.decode())))]


def unit_facts(unit: str, shown: str) -> dict[str, object]:
    """Return what `systemctl show` says; `[not set]` and empty values are unknown, never zero."""
    facts: dict[str, object] = {"manager": "systemd", "unit": unit}
    for line in shown.splitlines():
        name, _, value = line.partition("=")
        if name in UNIT_PROPERTIES and value and value != "[not set]":
            words = {"yes": True, "no": False}
            facts[UNIT_PROPERTIES[name]] = int(value) if re.fullmatch(r"\d{1,9}", value) else words.get(value, value)
    return facts
