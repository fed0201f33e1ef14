"""A deployment that may be broken on purpose: its engines take failpoints, and are told so on their command line.

The command line is the proof: it is what the processes run with, whoever asks and whatever files say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pdctl.deployment import layout
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.deployment.state import StateFolder
from pdctl.errors import Refused, UsageError
from pdctl.managers import shim

FAILPOINTS = "--enable-failpoints"
_NO_FLAGS: Mapping[Role, tuple[str, ...]] = {}


def for_drills(
    deployment: Deployment, folder: StateFolder, flags: Mapping[Role, tuple[str, ...]] = _NO_FLAGS
) -> Deployment:
    """Return the deployment whose engines of ours take failpoints and write their flight recorder to the state folder.

    `flags` are added to the engines of a role. Raises UsageError where there is no engine of ours to start.
    """
    if not any(_is_ours(instance) for instance in deployment.instances):
        raise UsageError(
            f"{deployment.name!r} has no engine of ours that pdctl starts on this machine, so none takes failpoints",
            'it needs dialect "pdctl", manager = "shim" and host = "local"',
        )

    def add(instance: Instance) -> Instance:
        if not _is_ours(instance) or instance.start is None:
            return instance
        flight = folder.paths(instance.name).log.with_suffix(".flight")
        more = (FAILPOINTS, "--flight-file", str(flight), *flags.get(instance.role, ()))
        known = instance.start if FAILPOINTS not in instance.start else _without(instance.start)
        return msgspec.structs.replace(instance, start=(*known, *more))

    return msgspec.structs.replace(deployment, instances=tuple(map(add, deployment.instances)))


def refuse_unless_for_drills(folder: StateFolder, deployment: Deployment, what: str) -> None:
    """Raise Refused unless every engine that runs was started for drills, by the command line it runs with."""
    engines = [instance for instance in deployment.instances if instance.role is not Role.ROUTER]
    unfit = [instance.name for instance in engines if FAILPOINTS not in _running_argv(folder, instance)]
    if unfit or not engines:
        raise Refused(
            f"{what} would break {deployment.name!r} on purpose, and {', '.join(unfit) or 'nothing'} "
            "was not started for drills; nothing was done",
            "leave out --name and --file, and the drill starts a deployment of its own",
        )


def _is_ours(instance: Instance) -> bool:
    return instance.dialect == "pdctl" and instance.role is not Role.ROUTER and layout.is_local(instance)


def _running_argv(folder: StateFolder, instance: Instance) -> Sequence[str]:
    """Return the command line of the process that runs now; empty where none of ours does."""
    if not _is_ours(instance):
        return ()
    seen = shim.observe(folder.paths(instance.name))
    return seen.record.argv if seen.record is not None and seen.life.has_process else ()


def _without(argv: Sequence[str]) -> tuple[str, ...]:
    """Return a command line without what an earlier `for_drills` added, which a kept deployment file still has."""
    return tuple(argv[: argv.index(FAILPOINTS)])
