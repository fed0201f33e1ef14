"""Collector: the code and settings that really run: flags from the argv, version, package, known fixes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pdctl.collect import source_table
from pdctl.collect.context import Context
from pdctl.collect.environment import kept_environment
from pdctl.collect.records import Status, Taken
from pdctl.collect.target import Target
from pdctl.deployment.model import Role
from pdctl.dialects.answers import Field
from pdctl.dialects.catalogue import family
from pdctl.dialects.family import Kind
from pdctl.dialects.fix_markers import FIX_MARKERS
from pdctl.evidence import toml_text
from pdctl.evidence.credentials import argv_without
from pdctl.hosts import child
from pdctl.hosts.host import Host

if TYPE_CHECKING:
    from pdctl.collect.host_facts import HostFacts

NAME = "source.toml"
SOURCE_S = 5.0
OUTPUT_MOST_BYTES = 32 << 20
# The family's own package first: its version is the instance's.
PACKAGES = {
    "pdctl": ("engine", "nixl_cu12", "torch"),
    "sglang": ("sglang", "nixl_cu12", "nixl", "mooncake", "torch"),
    "vllm": ("vllm", "nixl_cu12", "nixl", "torch"),
    "dynamo": ("dynamo", "sglang", "vllm", "nixl_cu12", "nixl"),
    "trtllm": ("tensorrt_llm", "nixl_cu12", "torch"),
    "smg": ("smg", "sglang_router"),
    "vllm-router": ("vllm_router",),
}


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """A package as the process finds it."""

    path: str
    version: str | None = None
    newer: tuple[str, ...] = ()
    newer_count: int = 0
    newest_at: float = 0.0


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What `source_table` prints of one process."""

    pid: int
    started_at: float
    environ: dict[str, str] = {}
    packages: dict[str, Package] = {}


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Of every root process of this host."""

    found: dict[int, Found] = {}
    problem: str | None = None
    timed_out: bool = False


async def read(targets: Iterable[Target], context: Context) -> Sources:
    """Look the packages of all targets up, in one child."""
    wanted = {target.pid: target.instance.dialect for target in targets if target.pid is not None}
    if not wanted:
        return Sources()
    names = dict.fromkeys(name for dialect in wanted.values() for name in PACKAGES.get(dialect, ()))
    argv = _argv(context.host, wanted, names)
    limit_s = context.deadline.at_most(SOURCE_S)
    done = await context.host.run(argv, deadline_s=limit_s, most_bytes=OUTPUT_MOST_BYTES, stdin=_program())
    return Sources(
        found={row.pid: row for row in _rows(done.stdout)},
        problem=None if done.ok else done.describe(),
        timed_out=done.end is child.End.TIMEOUT,
    )


def packages_now(host: Host, pid: int, dialect: str, deadline_s: float) -> dict[str, Package]:
    """Return the packages of one process as it finds them; empty where they cannot be read."""
    argv = _argv(host, [pid], PACKAGES.get(dialect, ()))
    done = host.run_now(argv, deadline_s=deadline_s, most_bytes=OUTPUT_MOST_BYTES, stdin=_program())
    return next((row.packages for row in _rows(done.stdout) if row.pid == pid), {})


def _argv(host: Host, pids: Iterable[int], names: Iterable[str]) -> list[str]:
    return [host.python, "-I", "-S", "-", ",".join(map(str, pids)), *names]


def _program() -> bytes:
    return Path(source_table.__file__).read_bytes()


def _rows(output: bytes) -> Iterator[Found]:
    return (msgspec.json.decode(line, type=Found) for line in output.splitlines() if line.endswith(b"}"))


async def take(target: Target, context: Context, host: HostFacts) -> list[Taken]:
    """Write the facts of the root process. The version is the one that the process itself tells, if it does."""
    root = host.table.of(target.pid) if target.pid is not None else None
    if root is None:
        return [_without_process(target)]
    # A process that renamed itself has lost its arguments; its shim has them on record.
    flags = argv_without(target.record.argv if target.record is not None else root.cmdline)
    told = await _told_version(target, context)
    found = host.sources.found.get(root.pid)
    if found is None:
        # The argv is known all the same.
        status = Status.TIMEOUT if host.sources.timed_out else Status.FAILED
        error = host.sources.problem or f"the files of pid {root.pid} cannot be read: run pdctl as root or as its user"
        content = toml_text.document({"flags": flags, "version": told or target.instance.version})
        return [Taken(name=NAME, content=content, status=status, error=error)]
    fixes = await _fixes(target, found, context)
    return [Taken(name=NAME, content=toml_text.document(_facts(target, found, flags, told, fixes)))]


async def _told_version(target: Target, context: Context) -> str | None:
    kind = Kind.ROUTER if target.instance.role is Role.ROUTER else Kind.ENGINE
    dialect = family(target.instance.dialect, kind)
    place = next((item for item in dialect.version if isinstance(item, Field)), None) if dialect else None
    if place is None:
        return None
    timeout_s = context.deadline.at_most(context.get_timeout_s)
    answer = await context.fetcher.get(target.instance, place.path, deadline_s=timeout_s)
    value = place.find({place.path: answer.body}) if answer.ok else None
    return str(value) if value is not None else None


def _without_process(target: Target) -> Taken:
    if target.record is None:
        return Taken(name=NAME, status=Status.ABSENT, error=target.why_no_pid)
    facts = {"flags": argv_without(target.record.argv), "version": target.instance.version}
    return Taken(name=NAME, content=toml_text.document(facts))


def _facts(
    target: Target, found: Found, flags: list[str], told: str | None, fixes: dict[str, bool]
) -> dict[str, object]:
    names = PACKAGES.get(target.instance.dialect, ())
    main = next((found.packages[name] for name in names if name in found.packages), None)
    facts: dict[str, object] = {
        "version": told or (main.version if main else None) or target.instance.version,
        "version_on_disk": main.version if main else None,
        "flags": flags,
        "env": kept_environment(found.environ),
        "fixes": fixes,
        "libraries": {name: item.version for name, item in found.packages.items() if item.version},
    }
    if main is not None:
        facts |= {
            "package_path": main.path,
            # On disk, but not in the process: what a restart would deploy too.
            "newer_files": main.newer,
            "newer_count": main.newer_count,
            "newest_at": datetime.fromtimestamp(main.newest_at, UTC) if main.newest_at else None,
        }
    return facts


async def _fixes(target: Target, found: Found, context: Context) -> dict[str, bool]:
    """Return marker -> whether the running code has it; a file changed since the start tells nothing of the process."""
    dialect, packages = target.instance.dialect, found.packages
    wanted = [item for item in FIX_MARKERS if item.dialect == dialect and item.package in packages]
    if not wanted:
        return {}
    words = [word for item in wanted for word in (f"{packages[item.package].path}/{item.file}", item.text.decode())]
    argv = ["sh", "-c", _HAS_TEXTS, "sh", f"@{found.started_at:.6f}", *words]
    done = await context.host.run(argv, deadline_s=context.deadline.at_most(SOURCE_S), most_bytes=1 << 16)
    answers = done.stdout.decode("utf-8", "replace").splitlines()
    told = zip(wanted, answers, strict=False)
    return {item.name: answer == "yes" for item, answer in told if answer in ("yes", "no")}


# One line a pair of file and text: yes, no, or nothing known, where the file is newer than the process or not there.
_HAS_TEXTS = """\
since=$1; shift
while [ $# -gt 1 ]; do
  if [ -n "$(find "$1" -prune -newermt "$since" 2>/dev/null)" ] || [ ! -r "$1" ]; then echo unknown
  elif grep -qaF -- "$2" "$1"; then echo yes
  else echo no; fi
  shift 2
done
"""
