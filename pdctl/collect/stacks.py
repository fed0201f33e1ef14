"""Collector (tiers 1 and 2): the stacks of every process of one instance, by py-spy.

Costs the target nothing measurable without blocking (10 ms to read, facts of py-spy 0.4.3); with `BLOCKING` or
`NATIVE` (tier 2) it stands still for as long as `pause_ms` says.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pdctl.collect import host_processes
from pdctl.collect.concurrency import all_of
from pdctl.collect.context import Context, Deadline
from pdctl.collect.host_processes import ProcessRow
from pdctl.collect.records import Mode, Status, Taken
from pdctl.collect.target import Target
from pdctl.hosts import child
from pdctl.hosts.host import LOCAL

ONE_DUMP_S = 5.0
RELEASE_S = 5.0
"""Also when time is over: nothing may be left standing."""
DUMP_MOST_BYTES = 4 << 20
NONBLOCKING_READS = 4
"""A read of a running interpreter can catch it in motion: 5 of 250 of a busy process did (py-spy 0.4.3), each once."""
FLAGS = {Mode.NONBLOCKING: ("--nonblocking",), Mode.BLOCKING: (), Mode.NATIVE: ("--native",)}
PTRACE_REMEDY = (
    "run pdctl as root or as the engine's user with `sudo setcap cap_sys_ptrace+ep PY-SPY`; "
    "in a container add the capability SYS_PTRACE (docker: --cap-add SYS_PTRACE)"
)


class _Dump(msgspec.Struct, frozen=True, kw_only=True):
    """What one py-spy said of one process."""

    row: ProcessRow
    threads: tuple[dict[str, object], ...] = ()
    status: Status = Status.OK
    error: str | None = None
    took_ms: float = 0.0
    is_missing: bool = False
    """There is no py-spy."""


async def take(target: Target, context: Context, name: str, mode: Mode = Mode.NONBLOCKING) -> list[Taken]:
    """Dump the whole tree into the file `name`; processes that cannot be read are named in its record."""
    if target.pid is None:
        return [Taken(name=name, status=Status.ABSENT, error=target.why_no_pid)]
    is_local = context.host.name == LOCAL
    pyspy = find_pyspy() if is_local else "py-spy"
    if pyspy is None:
        error = "py-spy is not installed beside pdctl nor on PATH: `pip install py-spy`"
        return [Taken(name=name, status=Status.ABSENT, error=error)]
    table = await host_processes.read((target.pid,), deadline_s=context.deadline.at_most(ONE_DUMP_S), host=context.host)
    rows = [row for row in table.processes if row.is_python and row.state not in ("Z", "X")]
    if not rows:
        return [Taken(name=name, status=Status.FAILED, error=table.problem or f"no Python process below {target.pid}")]
    dumps = await all_of(_dump(pyspy, row, context, mode) for row in rows)
    if all(dump.is_missing for dump in dumps):
        error = f"py-spy is not on PATH on {context.host.name}: `pip install py-spy` there, for the user who logs in"
        return [Taken(name=name, status=Status.ABSENT, error=error)]
    return [_merged(name, dumps, mode)]


def find_pyspy() -> str | None:
    """Return the py-spy that was installed with pdctl, else the one on PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


async def _dump(pyspy: str, row: ProcessRow, context: Context, mode: Mode) -> _Dump:
    refusal = _refusal(row, mode)
    if refusal is not None:
        return _Dump(row=row, status=Status.DENIED, error=refusal)
    argv = [pyspy, "dump", "--json", *FLAGS[mode], "--pid", str(row.pid)]
    async with context.attach_slots:
        done = await _read(argv, context, reads=NONBLOCKING_READS if mode is Mode.NONBLOCKING else 1)
    if mode is not Mode.NONBLOCKING:
        await _release(row, context)
    if not done.ok:
        status, error = _failure(done, row)
        is_missing = done.end is child.End.MISSING
        return _Dump(row=row, status=status, error=error, took_ms=done.took_ms, is_missing=is_missing)
    try:
        threads = msgspec.json.decode(done.stdout, type=list[dict[str, object]])
    except msgspec.DecodeError as error:
        return _Dump(row=row, status=Status.FAILED, error=f"pid {row.pid}: no JSON: {error}", took_ms=done.took_ms)
    return _Dump(row=row, threads=tuple(threads), took_ms=done.took_ms)


async def _read(argv: Sequence[str], context: Context, reads: int) -> child.Child:
    """Run py-spy, again when its read was caught in motion, all within one deadline."""
    one = Deadline(context.deadline.at_most(ONE_DUMP_S))
    while True:
        done = await context.host.run(
            argv, deadline_s=one.left_s, most_bytes=DUMP_MOST_BYTES, env={"RUST_BACKTRACE": "0"}
        )
        reads -= 1
        if done.ok or not reads or not one.left_s or "Failed to copy" not in done.stderr:
            return done


def _refusal(row: ProcessRow, mode: Mode) -> str | None:
    """Return why this process must not be attached to."""
    if row.tracer_pid:
        return f"pid {row.pid} is traced by {row.tracer or 'another process'} (pid {row.tracer_pid}); end that first"
    if mode is Mode.NONBLOCKING:
        return None
    if row.state == "T":
        return f"pid {row.pid} is stopped (SIGSTOP or a debugger); only a non-blocking dump is safe"
    if row.thread_states.get("D"):
        return f"pid {row.pid} has a thread in uninterruptible sleep (D); only a non-blocking dump is safe"
    return None


async def _release(row: ProcessRow, context: Context) -> None:
    """Continue a process that ran before a blocking dump and was left stopped by it; never one stopped by others."""
    if row.state == "T":
        return
    script = 'case "$(sed "s/.*) //" "/proc/$1/stat")" in "T "*) kill -CONT "$1";; esac'
    await context.host.run(["sh", "-c", script, "sh", str(row.pid)], deadline_s=RELEASE_S, most_bytes=1 << 10)


def _failure(done: child.Child, row: ProcessRow) -> tuple[Status, str]:
    words = done.stderr.strip()
    if "permission denied" in words.lower() or "operation not permitted" in words.lower():
        return Status.DENIED, f"pid {row.pid} ({row.title}): ptrace is denied; {PTRACE_REMEDY}"
    status = Status.TIMEOUT if done.end is child.End.TIMEOUT else Status.FAILED
    first = next((line for line in words.splitlines() if line.startswith("Error:")), "")
    return status, f"pid {row.pid} ({row.title}): {first or done.describe()}"


def _merged(name: str, dumps: Sequence[_Dump], mode: Mode) -> Taken:
    threads = [
        {**thread, "pid": dump.row.pid, "title": dump.row.title, "rank": dump.row.rank, "frames": _frames(thread)}
        for dump in dumps
        for thread in dump.threads
    ]
    failed = [dump for dump in dumps if dump.error]
    pauses = [dump.took_ms for dump in dumps if not dump.error]
    return Taken(
        name=name,
        content=msgspec.json.encode(threads) if threads else None,
        # The worst of them: where a rank is missing, nothing may be concluded from its absence.
        status=failed[0].status if failed else Status.OK,
        error="; ".join(dump.error or "" for dump in failed[:8]) or None,
        took_ms=max((dump.took_ms for dump in dumps), default=0.0),
        mode=mode,
        pause_ms=0.0 if mode is Mode.NONBLOCKING else max(pauses, default=0.0),
        attached=len(dumps) - sum(dump.status is Status.DENIED for dump in dumps),
    )


def _frames(thread: dict[str, object]) -> list[dict[str, object]]:
    """Return the frames without locals: they may quote prompts."""
    frames = thread.get("frames")
    kept = ("name", "filename", "line", "module")
    return [
        {key: frame[key] for key in kept if key in frame}
        for frame in (frames if isinstance(frames, list) else [])
        if isinstance(frame, dict)
    ]
