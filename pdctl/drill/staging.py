"""How a stage comes about: a deployment of the drill's own, or one that was started for drills."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from pdctl.deployment import files, layout, rehearsal, startup, state
from pdctl.deployment.model import Deployment, Role
from pdctl.deployment.readiness import Progress
from pdctl.deployment.state import StateFolder
from pdctl.drill.stage import RESTART, START_S, Say, Stage
from pdctl.errors import Refused
from pdctl.managers import shim
from pdctl.recover.ledger import FILE as LEDGER_FILE

NAME = "drill"
Flags = Mapping[Role, tuple[str, ...]]


@contextlib.contextmanager
def staged(
    model: Path,
    served_name: str,
    flags: Flags,
    port_base: int,
    progress: Progress,
    say: Say,
    *,
    every: tuple[str, ...] = (),
    ranks: int = 1,
) -> Iterator[Stage]:
    """Start 1 prefill, 1 decode and a router that take failpoints; nothing of them is left afterwards.

    `flags` are those of a role, `every` of both; `ranks` are those of each engine. Raises Refused where a deployment
    of that name runs, PdctlError, NotProven.
    """
    root = state.state_root()
    folder = StateFolder(root, NAME)
    folder.create()
    _refuse_while_running(folder)
    laid_out = _laid_out(linked(folder, model), served_name, port_base, ranks)
    added = {role: (*every, *flags.get(role, ())) for role in (Role.PREFILL, Role.DECODE)}
    deployment = rehearsal.for_drills(laid_out, folder, added)
    _forget_earlier(folder)
    stage = Stage(folder, deployment, say)
    with _last_used_kept(root), folder.locked(say):
        startup.bring_up(folder, deployment, progress, say, timeout_s=START_S, restart=RESTART)
    try:
        yield stage
    finally:
        stage.close()


@contextlib.contextmanager
def borrowed(name: str | None, file: Path | None, say: Say, *, ranks: int = 1) -> Iterator[Stage]:
    """Use a deployment that runs and was started for drills; it is left running, as the drill left it.

    Raises Refused where it was not started for drills, or its engines have fewer than `ranks`.
    """
    root = state.state_root()
    deployment = state.chosen(name, file, root)
    folder = StateFolder(root, deployment.name)
    rehearsal.refuse_unless_for_drills(folder, deployment, "a drill")
    if deployment.router is None:
        raise Refused(f"{deployment.name!r} has no router for the load to go through; nothing was done")
    _refuse_fewer_ranks(deployment, ranks)
    stage = Stage(folder, deployment, say, is_own=False)
    try:
        yield stage
    finally:
        stage.close()


def _refuse_while_running(folder: StateFolder) -> None:
    """Raise Refused where an earlier drill still runs, or was killed and left its processes."""
    kept = folder.load()
    alive = [item.name for item in kept.instances if shim.leftovers(folder.paths(item.name))] if kept else []
    if alive:
        raise Refused(
            f"{', '.join(alive)} of a drill still run, and two drills cannot share {folder.name!r}; nothing was done",
            f"end it with Ctrl-C; if it was killed: pdctl down --name {folder.name} --timeout 0",
        )


def _refuse_fewer_ranks(deployment: Deployment, ranks: int) -> None:
    few = [item.name for item in deployment.instances if item.role is not Role.ROUTER and (item.tp or 1) < ranks]
    if few:
        raise Refused(
            f"this drill parts the ranks of an engine, and {', '.join(few)} has fewer than {ranks}; nothing was done",
            f"leave out --name and --file, or use what was started by: pdctl up --for-drills --tp {ranks}",
        )


def _forget_earlier(folder: StateFolder) -> None:
    """Begin with an empty history, and with empty logs.

    The breaker would stop the third restart of one cause, and the last lines of the drill before are as young as the
    first of this one. What was kept of earlier drills stays.
    """
    (folder.folder / LEDGER_FILE).unlink(missing_ok=True)
    for log in (folder.folder / "logs").glob("*.log*"):
        log.unlink(missing_ok=True)


def linked(folder: StateFolder, model: Path) -> Path:
    """Return a link to the model in the drill's own folder: a drill may take it away from its engines."""
    link = folder.folder / model.name
    link.unlink(missing_ok=True)
    link.symlink_to(model)
    return link


def _laid_out(model: Path, served_name: str, port_base: int, ranks: int) -> Deployment:
    return layout.default_deployment(
        name=NAME,
        model=str(model),
        served_name=served_name,
        counts=layout.Counts(1, 1, ranks),
        ports=layout.Ports.from_base(port_base),
        cores=len(os.sched_getaffinity(0)),
    )


@contextlib.contextmanager
def _last_used_kept(root: Path) -> Iterator[None]:
    """Keep which deployment commands are about when they name none: never the one that is broken on purpose."""
    before = state.last_used(root)
    try:
        yield
    finally:
        if before is None:
            (root / "last").unlink(missing_ok=True)
        else:
            files.write_atomically(root / "last", f"{before}\n")
