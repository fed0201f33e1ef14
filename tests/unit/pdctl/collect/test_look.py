"""Dumps for a person: which of them stop an instance, and how many at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from pdctl.collect import look
from pdctl.collect.context import Context
from pdctl.collect.records import Mode, Taken
from pdctl.collect.target import Target
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.deployment.state import StateFolder

INSTANCES = tuple(
    Instance(name=name, role=Role.DECODE, dialect="sglang", url="http://192.0.2.1:1") for name in ("a", "b", "c")
)


@pytest.mark.parametrize(("mode", "most", "told"), [(Mode.NATIVE, 1, ["a", "b", "c"]), (Mode.NONBLOCKING, 3, [])])
def test_one_instance_at_a_time_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, most: int, told: list[str]
) -> None:
    """Native dumps go through the instances one by one and name each before; the others stop nobody."""
    running: set[str] = set()
    seen: list[int] = []

    async def survey() -> None:
        return None

    async def take(target: Target, context: Context, name: str, how: Mode) -> list[Taken]:
        running.add(target.name)
        for _ in range(5):
            await asyncio.sleep(0)
            seen.append(len(running))
        running.remove(target.name)
        return [Taken(name=name)]

    site = SimpleNamespace(survey=survey, context=None, table=None, name="")
    monkeypatch.setattr(look, "sites_of", lambda *rest: [site])
    monkeypatch.setattr(look.locate, "targets", lambda *rest: [Target(instance=item) for item in INSTANCES])
    monkeypatch.setattr(look.stacks, "take", take)
    lines: list[str] = []
    deployment = Deployment(name="x", model="m", instances=INSTANCES)
    dumps = look.dump(deployment, StateFolder(tmp_path, "x"), mode, 10.0, lines.append)
    assert [dump.instance for dump in dumps] == ["a", "b", "c"]
    assert max(seen) == most
    assert [line.partition(":")[0] for line in lines] == told
