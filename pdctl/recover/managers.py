"""Of each instance of a deployment the one who starts and stops it here; others' instances have none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pdctl.deployment import layout
from pdctl.deployment.model import Deployment, Instance
from pdctl.deployment.state import StateFolder
from pdctl.errors import PdctlError
from pdctl.hosts.host import Host
from pdctl.managers.sight import Sight
from pdctl.recover.drift import Drift
from pdctl.recover.manager import Manager
from pdctl.recover.plan import Target
from pdctl.recover.shim_manager import ShimManager
from pdctl.recover.unit_manager import UnitManager

NOBODY = Sight(words="run by others", is_known=False)


class Managers:
    """A Manager over all of a deployment: every call goes to the instance's own."""

    def __init__(self, folder: StateFolder, deployment: Deployment, host_of: Callable[[str], Host]) -> None:
        shims = ShimManager(folder)
        on_host: dict[str, dict[str, str]] = {}
        for item in deployment.instances:
            if item.manager == "systemd" and item.unit:
                on_host.setdefault(item.host, {})[item.name] = item.unit
        units = {name: UnitManager(host_of(name), units) for name, units in on_host.items()}
        self._by_name: dict[str, Manager] = {
            item.name: shims if layout.is_local(item) else units[item.host]
            for item in deployment.instances
            if layout.is_local(item) or (item.manager == "systemd" and item.unit)
        }

    def manages(self, name: str) -> bool:
        """Return whether pdctl itself can stop and start an instance."""
        return name in self._by_name

    def look(self, name: str) -> Sight:
        """Return what its manager knows, nothing for others' instances."""
        return self._by_name[name].look(name) if self.manages(name) else NOBODY

    def death(self, name: str) -> str | None:
        """Return how an instance that was started ended, None while it lives or may yet, or cannot be seen."""
        try:
            seen = self.look(name)
        except PdctlError:
            return None
        return seen.words if seen.is_down else None

    def ask_to_stop(self, name: str) -> None:
        """Ask its manager."""
        self._by_name[name].ask_to_stop(name)

    def await_stopped(self, name: str, deadline_s: float) -> bool:
        """Ask its manager."""
        return self._by_name[name].await_stopped(name, deadline_s)

    def start(self, target: Target) -> Sight:
        """Ask its manager."""
        return self._by_name[target.name].start(target)

    def last_words(self, name: str) -> str:
        """Ask its manager."""
        return self._by_name[name].last_words(name)

    def problems(self, instance: Instance) -> Iterable[str]:
        """Return what would keep it from starting again."""
        if self.manages(instance.name):
            return self._by_name[instance.name].problems(instance)
        return (
            f"{instance.name} is not run by pdctl (manager {instance.manager}, host {instance.host}): "
            "name those that pdctl runs and those that others run in two calls",
        )

    def drift(self, instance: Instance) -> tuple[Drift, ...]:
        """Return what else a restart would deploy; of others' instances nothing is known."""
        return self._by_name[instance.name].drift(instance) if self.manages(instance.name) else ()

    def stopped_with(self, name: str) -> tuple[str, ...]:
        """Return the instances that its manager stops along with it."""
        return self._by_name[name].stopped_with(name) if self.manages(name) else ()
