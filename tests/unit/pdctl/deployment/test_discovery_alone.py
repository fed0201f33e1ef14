"""Discovery of workers of Dynamo whose component is `backend`: what they are depends on who is beside them."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from pdctl.deployment.discovery import discover
from pdctl.deployment.identify import Address
from pdctl.deployment.model import Role
from pdctl.errors import NotProven
from tests.fakes.families import dynamo_frontend, dynamo_worker


@pytest.mark.parametrize(("components", "roles"), [
    (("backend", "backend"), (Role.UNIFIED, Role.UNIFIED)),
    (("backend", "prefill"), (Role.DECODE, Role.PREFILL)),
    (("backend", "decode"), (Role.UNIFIED, Role.DECODE)),
    (("decode",), (Role.DECODE,)),
])  # fmt: skip
def test_a_backend_does_both_where_nobody_prefills(components: tuple[str, ...], roles: tuple[Role, ...]) -> None:
    """Aggregated serving has the same word as the decoding half; a note says what was taken for what."""
    with ExitStack() as held:
        frontend = held.enter_context(dynamo_frontend())
        workers = [held.enter_context(dynamo_worker(component)) for component in components]
        found = discover([Address(item.url) for item in (frontend, *workers)])
    assert tuple(one.role for one in found.deployment.instances) == (Role.ROUTER, *roles)
    taken = [worker.url for worker in workers if any(f"{worker.url} is taken as unified" in n for n in found.notes)]
    assert taken == [worker.url for worker, role in zip(workers, roles, strict=True) if role is Role.UNIFIED]


@pytest.mark.parametrize("role", [Role.DECODE, Role.UNIFIED])
def test_the_operators_word_counts(role: Role) -> None:
    """Either is what a backend can be."""
    with dynamo_frontend() as frontend, dynamo_worker("backend") as worker:
        found = discover([Address(frontend.url), Address(worker.url, role)])
    assert [one.role for one in found.deployment.instances] == [Role.ROUTER, role]


def test_a_backend_is_no_prefill() -> None:
    """It says otherwise."""
    with dynamo_worker("backend") as worker, pytest.raises(NotProven, match="says that it is decode, not prefill"):
        discover([Address(worker.url, Role.PREFILL)])
