"""Find the engines and routers that run on this host, with nothing configured: from command lines and ports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pdctl.collect import host_processes
from pdctl.collect.host_processes import ProcessRow, Table
from pdctl.deployment import files, router_answers, router_arguments
from pdctl.deployment.grouping import connected
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.deployment.state import StateFolder, chosen
from pdctl.dialects.command_flags import Flags, command_line_of
from pdctl.dialects.command_lines import CommandLine
from pdctl.errors import CannotTell, UsageError
from pdctl.managers import shim

SURVEY_S = 5.0
UNTIED = "untied"
ANY_ADDRESS = ("", "0.0.0.0", "::", "*", "localhost")
# What starts other programs and lends them its unit.
HOSTS_OF_OTHERS = ("cron", "sshd", "atd", "containerd", "dockerd", "kubelet", "tmux", "screen")


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken for a deployment, and what the command lines do not tell."""

    deployment: Deployment
    taken: tuple[str, ...]
    """One line an instance: what it is and how it was recognised."""
    untold: tuple[str, ...]
    folder: StateFolder | None = None
    """Where pdctl keeps the state of these processes, if it runs them."""


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    row: ProcessRow
    line: CommandLine
    instance: Instance
    notes: tuple[str, ...]
    spec: Path | None = None


def running(*, deadline_s: float = SURVEY_S) -> Running:
    """Look at every process of this host, and ask its routers for workers that have none. Raises as `find` does."""
    found = find(_with_recorded_arguments(host_processes.read_now(deadline_s=deadline_s)))
    return with_missing(found, router_answers.roles(found.deployment.of_role(Role.ROUTER)))


def with_missing(found: Running, told: dict[str, Role]) -> Running:
    """Add the workers that routers tell of (address -> role), at an address of this host, and that do not run."""
    present = found.deployment.instances
    engines = [item for item in present if item.role is not Role.ROUTER]
    named = _named([*present, *router_arguments.missing(told, engines)])
    lines = (f"{one.name}: {one.url}, named by the router; nothing of it runs here" for one in named[len(present) :])
    return msgspec.structs.replace(
        found,
        deployment=msgspec.structs.replace(found.deployment, instances=tuple(named)),
        taken=(*found.taken, *lines),
    )


def chosen_or_running(name: str | None, file: Path | None, root: Path) -> Running:
    """Return the deployment a command is about; with nothing named and nothing known, what runs on this host.

    Raises UsageError for a name or file that is wrong, CannotTell where there is nothing at all.
    """
    try:
        deployment = chosen(name, file, root)
    except CannotTell:
        if name is not None or file is not None:
            raise
        return running()
    return Running(deployment=deployment, taken=(), untold=(), folder=StateFolder(root, deployment.name))


def find(table: Table) -> Running:
    """Return the deployment that these processes make.

    Raises CannotTell where there is none, UsageError where there are several that have nothing to do with each other.
    """
    seen = _with_roles_of_routers(list(_each(table)))
    if not seen:
        why = f" ({table.problem})" if table.problem else ""
        raise CannotTell(
            f"no engine or router runs on this host, as far as this user can see{why}",
            "name their URLs, or a deployment file with --file; as root, the processes of all users are seen",
        )
    groups = connected(seen, [_links(item) for item in seen])
    if len(groups) > 1:
        texts = ("; ".join(_taken(item.instance, item) for item in group) for group in groups)
        raise UsageError(
            "\n  ".join(
                (f"{len(groups)} deployments run on this host, and have nothing to do with each other:", *texts)
            ),
            "name one: --name for what `pdctl up` started, else --file, or its URLs",
        )
    return _running(seen)


def _running(seen: Sequence[_Seen]) -> Running:
    specs = {item.spec.parents[1] for item in seen if item.spec is not None}
    state = specs.pop() if len(specs) == 1 else None
    named = _named([item.instance for item in seen])
    models = [item.instance.model for item in seen if item.instance.model]
    deployment = Deployment(
        name=state.name if state else "this-host", model=models[0] if models else "", instances=tuple(named)
    )
    found = Running(
        deployment=deployment,
        taken=tuple(_taken(instance, item) for instance, item in zip(named, seen, strict=True)),
        untold=tuple(f"{i.name}: {note}" for i, item in zip(named, seen, strict=True) for note in item.notes),
        folder=StateFolder(state.parent, state.name) if state else None,
    )
    return with_missing(found, _told_by_routers(seen))


def _links(item: _Seen) -> set[str]:
    """Return what ties a process to others: its state folder, the addresses that it has and those it was told.

    Most engines are told of no peer; all that are tied to nothing may belong together.
    """
    argv = item.row.cmdline
    flags = Flags(argv)
    links = {f"state {item.spec.parents[1]}"} if item.spec else set()
    if item.line.is_router:
        links |= router_arguments.addresses(argv)
        # A router that shows no arguments may belong to any of them.
        return links or {UNTIED}
    links.add(item.instance.url)
    if item.line.dialect == "pdctl":
        peers = flags.text(("--peers",)) or ""
        links |= {f"registry {peer.rpartition(':')[2]}" for peer in peers.split(",") if peer}
        links |= {f"registry {item.instance.bootstrap_port}"} if item.instance.bootstrap_port else set()
        return links
    return links | {UNTIED}


def _with_recorded_arguments(table: Table) -> Table:
    """Give back to processes that renamed themselves (smg) the command line that their shim has on record."""
    by_pid = {row.pid: row for row in table.processes}

    def told(row: ProcessRow) -> ProcessRow:
        spec = _shim_spec(by_pid.get(row.ppid)) if len(row.cmdline) == 1 else None
        record = shim.observe(shim.Paths(spec.with_suffix(".json"), spec)).record if spec else None
        return msgspec.structs.replace(row, cmdline=record.argv) if record and record.pid == row.pid else row

    return msgspec.structs.replace(table, processes=tuple(told(row) for row in table.processes))


def _each(table: Table) -> Iterator[_Seen]:
    by_pid = {row.pid: row for row in table.processes}
    urls: set[str] = set()
    for row in sorted(table.processes, key=lambda row: row.start_ticks):
        line = command_line_of(row.cmdline)
        parent = by_pid.get(row.ppid)
        # A worker that was forked keeps the command line of its parent; a shell around it has another.
        if line is None or (parent and parent.cmdline == row.cmdline) or row.state in ("Z", "X"):
            continue
        seen = _seen(row, line, table, parent)
        if seen.instance.url not in urls:
            urls.add(seen.instance.url)
            yield seen


def _seen(row: ProcessRow, line: CommandLine, table: Table, parent: ProcessRow | None) -> _Seen:
    flags = Flags(row.cmdline)
    listening = tuple(port for item in table.tree(row.pid) for port in item.listening)
    notes: list[str] = []
    role = Role.ROUTER if line.is_router else _role(line, flags)
    if role is None:
        notes.append("its role is not in its command line; taken as unified")
    port = (
        flags.number(line.port_flags)
        or row.status_port
        or line.default_ports.get(role or "", line.default_ports.get(""))
    )
    if listening and port not in listening and not flags.number(line.port_flags):
        port = min(set(listening) - {line.default_metrics_port} or listening)
        notes.append("its HTTP port is not in its command line; the lowest that it listens on was taken")
    if port not in listening:
        notes.append(f"nothing of it listens on port {port}: not up yet, hung in its start, or in another network")
    spec = _shim_spec(parent)
    unit = _unit(row, table)
    role = role or Role.UNIFIED
    is_prefill = role is Role.PREFILL
    name = flags.text(("--instance",)) if line.dialect == "pdctl" else None
    instance = Instance(
        name=spec.stem if spec else name or "",
        role=role,
        dialect=line.dialect,
        url=f"http://{_host(flags.text(line.host_flags))}:{port}",
        manager="shim" if spec else "systemd" if unit else "none",
        unit=unit,
        bootstrap_port=(flags.number(line.bootstrap_flags) or line.default_bootstrap) if is_prefill else None,
        metrics_url=_metrics_url(line, flags),
        model=flags.text(line.model_flags) or _positional_model(row.cmdline, line),
        tp=flags.number(line.tp_flags) or (1 if line.tp_flags else None),
        transfer=flags.text(line.transfer_flags) or line.default_transfer,
    )
    return _Seen(row=row, line=line, instance=instance, notes=tuple(notes), spec=spec)


def _role(line: CommandLine, flags: Flags) -> Role | None:
    name = flags.given(line.role_flags)
    if name is None:
        word = line.default_role
    elif name.startswith("--is-"):
        word = "prefill" if "prefill" in name else "decode"
    else:
        value = flags.text((name,)) or ""
        found = re.search(r'"kv_role"\s*:\s*"(\w+)"', value)
        word = line.roles.get(found[1] if found else value, "")
    return Role(word) if word else None


def _host(text: str | None) -> str:
    host = "127.0.0.1" if text is None or text in ANY_ADDRESS else text
    return f"[{host}]" if ":" in host else host


def _metrics_url(line: CommandLine, flags: Flags) -> str | None:
    if not line.metrics_port_flag:
        return None
    port = flags.number((line.metrics_port_flag,)) or line.default_metrics_port
    return f"http://{_host(flags.text((line.metrics_host_flag,)))}:{port}/metrics"


def _positional_model(argv: Sequence[str], line: CommandLine) -> str | None:
    """Return MODEL of `vllm serve MODEL`."""
    if line.dialect != "vllm" or "serve" not in argv:
        return None
    after = argv[argv.index("serve") + 1 :]
    return after[0] if after and not after[0].startswith("-") else None


def _shim_spec(parent: ProcessRow | None) -> Path | None:
    """Return the spec file of the shim that runs a process."""
    if parent is None or not any(word.endswith("shim_process.py") for word in parent.cmdline):
        return None
    spec = Path(parent.cmdline[-1])
    return spec if spec.suffix == ".spec" and spec.parent.name == "instances" else None


def _unit(row: ProcessRow, table: Table) -> str | None:
    """Return the unit whose own process this is; cron, sshd and the like only lend theirs."""
    if row.unit is None:
        return None
    top = row
    while (parent := table.of(top.ppid)) is not None and parent.unit == row.unit:
        top = parent
    return None if top.name in HOSTS_OF_OTHERS else row.unit


def _told_by_routers(seen: Sequence[_Seen]) -> dict[str, Role]:
    return router_arguments.roles(item.row.cmdline for item in seen if item.line.is_router)


def _with_roles_of_routers(seen: Sequence[_Seen]) -> list[_Seen]:
    """Fill roles that no command line tells from what a router here was told of its workers."""
    told = _told_by_routers(seen)
    return [_with_role(item, told.get(router_arguments.as_loopback(item.instance.url))) for item in seen]


def _with_role(item: _Seen, role: Role | None) -> _Seen:
    unknown = [note for note in item.notes if note.startswith("its role")]
    if role is None or not unknown:
        return item
    return msgspec.structs.replace(
        item,
        instance=msgspec.structs.replace(item.instance, role=role),
        notes=tuple(note for note in item.notes if note not in unknown),
    )


def _named(instances: Sequence[Instance]) -> list[Instance]:
    """Give names to those that have none, or one that is taken: role and number."""
    taken: set[str] = set()
    named: list[Instance] = []
    for item in instances:
        name, number = item.name, 0
        while not files.NAME.fullmatch(name) or name in taken:
            is_only_router = item.role is Role.ROUTER and number == 0
            name = "router" if is_only_router and "router" not in taken else f"{item.role.value}-{number}"
            number += 1
        taken.add(name)
        named.append(msgspec.structs.replace(item, name=name))
    return named


def _taken(instance: Instance, item: _Seen) -> str:
    place = f", unit {instance.unit}" if instance.unit else ", run by pdctl" if item.spec else ""
    return f"{instance.name}: {instance.dialect} {instance.role.value}, pid {item.row.pid}, {instance.url}{place}"
