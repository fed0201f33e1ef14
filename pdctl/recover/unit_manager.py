"""systemd as a recovery sees it: each instance is a unit of one host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pdctl.deployment.model import Instance
from pdctl.hosts.host import Host
from pdctl.managers import systemd
from pdctl.managers.sight import Sight
from pdctl.recover import unit_drift
from pdctl.recover.drift import Drift
from pdctl.recover.plan import Target

WORDS = 20


@dataclass(frozen=True, slots=True)
class UnitManager:
    """The units of one host."""

    host: Host
    units: Mapping[str, str]
    """Instance -> unit."""
    _frozen: set[str] = field(default_factory=set)
    """Instances that a signal held when they were asked to stop."""

    def look(self, name: str) -> Sight:
        """Return what systemd knows."""
        return systemd.look(self.host, self.units[name]).sight()

    def ask_to_stop(self, name: str) -> None:
        """Let systemd stop the unit, by its own ExecStop= and KillMode=."""
        if systemd.is_frozen(self.host, self.units[name]):
            self._frozen.add(name)
        systemd.ask_to_stop(self.host, self.units[name])

    def await_stopped(self, name: str, deadline_s: float) -> bool:
        """Wait, then kill everything in the unit's group."""
        # systemd wakes the main process with SIGTERM, but not its ranks: waiting for them would only cost time.
        limit_s = 0.0 if name in self._frozen else deadline_s
        return systemd.await_stopped(self.host, self.units[name], limit_s)

    def start(self, target: Target) -> Sight:
        """Start the unit; one that failed too often is forgiven first."""
        return systemd.start(self.host, self.units[target.name])

    def last_words(self, name: str) -> str:
        """Return the end of this run's journal."""
        unit = self.units[name]
        lines = systemd.last_words(self.host, unit, WORDS) or ("(the journal has nothing of it)",)
        return "\n".join([f"the end of journalctl -u {unit}:", *(f"    {line}" for line in lines)])

    def problems(self, instance: Instance) -> Iterable[str]:
        """Return what would keep the unit from starting: not loaded, masked, or it refuses to."""
        name = self.units[instance.name]
        unit = systemd.look(self.host, name)
        loaded = unit.text("LoadState")
        if loaded != "loaded":
            why = f" ({unit.text('LoadError')})" if unit.text("LoadError") else ""
            yield f"{instance.name}: unit {name} is {loaded or 'unknown'} on {self.host.name}{why}"
            return
        for verb, key in (("started", "RefuseManualStart"), ("stopped", "RefuseManualStop")):
            if unit.text(key) == "yes":
                yield f"{instance.name}: unit {name} refuses to be {verb} by hand ({key}=yes)"
        if unit.text("CanStart") == "no":
            yield f"{instance.name}: unit {name} cannot be started"

    def drift(self, instance: Instance) -> tuple[Drift, ...]:
        """Return what changed since its process started: unit files, and what its command line names."""
        unit = systemd.look(self.host, self.units[instance.name])
        return tuple(Drift(instance.name, what) for what in unit_drift.of(self.host, unit, instance.dialect))

    def stopped_with(self, name: str) -> tuple[str, ...]:
        """Return the instances whose units systemd stops along with this one."""
        along = systemd.stopped_with(self.host, self.units[name])
        return tuple(other for other, unit in self.units.items() if unit in along and other != name)
