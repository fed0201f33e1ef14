"""What `pdctl up` is to start: from a deployment file, or laid out from a few numbers."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pdctl.deployment import files, layout, model_files, state
from pdctl.deployment.model import Deployment
from pdctl.deployment.model_files import ModelFile
from pdctl.errors import UsageError

DEFAULT_NAME = "default"


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for; None is not asked."""

    model: str | None = None
    prefill: int | None = None
    decode: int | None = None
    tp: int | None = None
    port_base: int | None = None
    file: Path | None = None
    name: str | None = None

    def layout_flags(self) -> tuple[str, ...]:
        """Return the flags given that only make sense without a deployment file."""
        given = {
            "--prefill": self.prefill,
            "--decode": self.decode,
            "--tp": self.tp,
            "--port-base": self.port_base,
            "--name": self.name,
        }
        return tuple(flag for flag, value in given.items() if value is not None)


def plan(request: Request, resolve: Callable[[str], ModelFile]) -> Deployment:
    """Return the deployment with the command of each instance. `resolve` may fetch the model.

    Raises UsageError where file and flags contradict each other or a value is wrong.
    """
    file = request.file or (state.HERE if state.HERE.exists() else None)
    cores = len(os.sched_getaffinity(0))
    if file is not None:
        if flags := request.layout_flags():
            raise UsageError(
                f"{file} says what is deployed, and {', '.join(flags)} would too",
                f"leave the flag out and edit {file}, or call pdctl in a folder without pd.toml",
            )
        deployment = files.load(file)
        if not layout.needs_model(deployment):
            return deployment
        model = resolve(deployment.model if request.model is None else request.model)
        return layout.with_starts(deployment, model=str(model.path), cores=cores)
    base = request.port_base
    ports = layout.Ports.from_base(base) if base is not None else layout.Ports()
    name = request.name or DEFAULT_NAME
    if not files.NAME.fullmatch(name):
        raise UsageError(f"--name {name!r} cannot be a name", "use letters, digits, '.', '_', '-', at most 64")
    # All checked before the model is fetched: a typing error must not cost a minute.
    asked = {"prefill": request.prefill, "decode": request.decode, "tp": request.tp}
    counts = layout.Counts(**{what: number for what, number in asked.items() if number is not None})
    model = resolve(model_files.DEFAULT if request.model is None else request.model)
    return layout.default_deployment(
        name=name,
        model=str(model.path),
        served_name=model.served_name,
        counts=counts,
        ports=ports,
        cores=cores,
    )
