"""What the routers of this host answer of their workers: most of them hide their arguments behind a title."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pdctl.collect.http import InstanceClient
from pdctl.deployment.identify import ASKING, Address, Worker, identify
from pdctl.deployment.model import Instance, Role
from pdctl.deployment.router_arguments import as_loopback
from pdctl.errors import NotProven

_ROLES = {role.value: role for role in (Role.PREFILL, Role.DECODE)}


def roles(routers: Sequence[Instance]) -> dict[str, Role]:
    """Return address -> role of the workers that they list, by plain GETs; who does not answer tells nothing."""
    if not routers:
        return {}
    with ThreadPoolExecutor(max_workers=len(routers)) as pool:
        listed = [worker for workers in pool.map(_listed, routers) for worker in workers]
    return {as_loopback(one.url): _ROLES[one.worker_type] for one in listed if one.worker_type in _ROLES}


def _listed(router: Instance) -> tuple[Worker, ...]:
    with InstanceClient(router.url, timeouts=ASKING) as client:
        try:
            return identify(Address(router.url, Role.ROUTER), client).workers
        except NotProven:
            return ()
