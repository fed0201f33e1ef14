"""The processes of this host, read by a child that can be killed (see `process_table`)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from pdctl.collect import process_table
from pdctl.hosts import child
from pdctl.hosts.host import Host, LocalHost

OUTPUT_MOST_BYTES = 16 << 20
_RANK = re.compile(r"(?:DP|PP|PCP|TP|EP|DCP|ATTN_CP|MOE_DP)\d+")
_PYTHON = re.compile(r"python[\d.]*")


class ProcessRow(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="process"):
    """One process. The fields with defaults are read for an engine's tree only."""

    pid: int
    ppid: int
    name: str
    state: str
    """R S D T Z X I; t is traced."""
    started_at: float
    """Unix time, to 0.01 s."""
    start_ticks: int
    cpu_s: float
    read_at: float = 0.0
    """Unix time of this look."""
    rss_mb: float = 0.0
    cmdline: tuple[str, ...] = ()
    unit: str | None = None
    stdout: str | None = None
    """Where descriptor 1 leads: a path, or `pipe:[...]`."""
    cwd: str | None = None
    exe: str | None = None
    listening: tuple[int, ...] = ()
    status_port: int | None = None
    """Of a Dynamo worker."""
    threads: tuple[str, ...] = ()
    thread_states: dict[str, int] = {}
    tracer_pid: int | None = None
    tracer: str | None = None
    wchan: str | None = None
    uid: int | None = None
    cgroup_oom_kills: int | None = None

    @property
    def title(self) -> str:
        """Return what people call it: the title it gave itself, else program and module."""
        if not self.cmdline:
            return self.name
        if len(self.cmdline) == 1 or "::" in self.cmdline[0]:
            return self.cmdline[0].strip()
        program, *rest = self.cmdline
        words = [Path(program).name]
        if _PYTHON.fullmatch(words[0]):
            rest = _without_interpreter_flags(rest)
            words += rest[:2] if rest[:1] == ["-m"] else [Path(word).name for word in rest[:1]]
            rest = rest[2:] if rest[:1] == ["-m"] else rest[1:]
        if rest and re.fullmatch(r"[a-z][a-z-]*", rest[0]):
            words.append(rest[0])
        return " ".join(words)

    @property
    def rank(self) -> str:
        """Return `TP0`, `DP1 TP3`; empty where neither title nor arguments tell."""
        if self.title.startswith(("sglang::scheduler", "VLLM::Worker", "VLLM::EngineCore")):
            return " ".join(_RANK.findall(self.title)) or "TP0"
        if "engine.scheduler" in self.cmdline:
            given = dict(zip(self.cmdline, self.cmdline[1:], strict=False)).get("--rank", "0")
            return f"TP{given}"
        return ""

    @property
    def is_python(self) -> bool:
        """Return whether it is probably a Python process, which py-spy can read."""
        return bool(_PYTHON.match(Path(self.exe or "").name)) or "::" in self.title

    @property
    def began(self) -> datetime:
        """Return when it started, UTC."""
        return datetime.fromtimestamp(self.started_at, UTC)


class SocketRow(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="socket"):
    """One TCP socket of a process, with what waits unread and unsent in it."""

    pid: int
    state: str
    local: str
    remote: str
    local_port: int
    send_queue_bytes: int
    receive_queue_bytes: int


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """What could be read; `problem` says why it may not be all."""

    processes: tuple[ProcessRow, ...] = ()
    sockets: tuple[SocketRow, ...] = ()
    problem: str | None = None
    timed_out: bool = False

    def of(self, pid: int) -> ProcessRow | None:
        """Return a process by its pid."""
        return next((row for row in self.processes if row.pid == pid), None)

    def tree(self, root: int | None) -> tuple[ProcessRow, ...]:
        """Return a process and all its descendants, parents first."""
        children: dict[int, list[ProcessRow]] = {}
        for row in self.processes:
            children.setdefault(row.ppid, []).append(row)
        found = [row for row in self.processes if row.pid == root]
        for row in found:
            found += [child for child in children.get(row.pid, ()) if child not in found]
        return tuple(found)

    def is_stopped(self, root: int | None) -> bool:
        """Return whether a signal holds all of a tree: nothing of it answers until it is let go on."""
        tree = self.tree(root)
        return bool(tree) and all(row.state in ("T", "Z") for row in tree) and any(row.state == "T" for row in tree)


async def read(roots: Sequence[int] = (), *, deadline_s: float, host: Host | None = None) -> Table:
    """Return every process of a host briefly, or the trees below `roots` in detail. About 100 ms of one core."""
    host = host or LocalHost()
    argv = [host.python, "-I", "-S", "-", *map(str, roots)]
    program = Path(process_table.__file__).read_bytes()
    done = await host.run(argv, deadline_s=deadline_s, most_bytes=OUTPUT_MOST_BYTES, stdin=program)
    return msgspec.structs.replace(
        parse(done.stdout),
        problem=_problem(done),
        timed_out=done.end is child.End.TIMEOUT,
    )


def _problem(done: child.Child) -> str | None:
    if done.ok:
        return None
    return done.stderr if done.end is child.End.UNREACHABLE else f"reading /proc: {done.describe()}"


def read_now(*, deadline_s: float) -> Table:
    """Return every process of this host, for callers without an event loop."""
    return asyncio.run(read(deadline_s=deadline_s))


def parse(output: bytes) -> Table:
    """Return the complete lines of a table; half a line at its end is passed over."""
    decoder = msgspec.json.Decoder(ProcessRow | SocketRow)
    processes: list[ProcessRow] = []
    sockets: list[SocketRow] = []
    for line in output.splitlines():
        try:
            row = decoder.decode(line)
        except msgspec.DecodeError:
            continue
        if isinstance(row, ProcessRow):
            processes.append(row)
        else:
            sockets.append(row)
    return Table(processes=tuple(processes), sockets=tuple(sockets))


def _without_interpreter_flags(words: Iterable[str]) -> list[str]:
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
        rest = rest[2:] if rest[0] in ("-X", "-W") else rest[1:]
    return rest
