"""The whole evidence of one incident. Made once, never changed; two loads of the same bytes are equal."""

from __future__ import annotations

from datetime import datetime

import msgspec

from pdctl.evidence.records import (
    Capture,
    Exposition,
    Get,
    Gpu,
    LogLine,
    Probe,
    Problem,
    Process,
    ProcessStack,
    Socket,
    SourceFacts,
)
from pdctl.evidence.rooms import RoomList
from pdctl.evidence.server_info import ServerInfo
from pdctl.evidence.traces import Mark, Trace


class InstanceEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one engine or router."""

    name: str
    role: str = ""
    """prefill | decode | unified | router | `` when nobody said."""
    dialect: str = ""
    url: str = ""
    version: str | None = None
    transfer: str | None = None
    bootstrap_port: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    nodes: int | None = None
    metrics: Exposition | None = None
    metrics_prev: Exposition | None = None
    loads: dict[str, float] = {}
    """Numbers of the engine's own load report, flattened: `disaggregation.prefill_inflight_queue_reqs`."""
    loads_prev: dict[str, float] = {}
    log: tuple[LogLine, ...] | None = None
    """None: no log was taken. In the order of the files, oldest first within each."""
    log_truncated: bool = False
    stacks: tuple[ProcessStack, ...] = ()
    stacks_prev: tuple[ProcessStack, ...] = ()
    native: tuple[ProcessStack, ...] = ()
    processes: tuple[Process, ...] = ()
    sockets: tuple[Socket, ...] = ()
    gets: tuple[Get, ...] = ()
    gets_prev: tuple[Get, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    source: SourceFacts | None = None
    server_info: ServerInfo | None = None
    flight: tuple[Mark, ...] = ()
    """Of our own engine: what its recorder tells, also of one that hung or was killed."""
    rooms: RoomList | None = None
    """Legs that are live; None where the engine lists none."""
    rooms_recent: RoomList | None = None
    """Legs that ended within the last minute."""
    history: tuple[Trace, ...] = ()
    """What a Prometheus had kept of it before the capture."""
    capture: Capture = Capture()


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One incident."""

    captured_at: datetime | None = None
    captured_prev_at: datetime | None = None
    instances: tuple[InstanceEvidence, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    """Fixed prefill-decode pairs by name; empty: every prefill with every decode."""
    probes: tuple[Probe, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def interval_s(self) -> float | None:
        """Return the seconds between the two samples."""
        if self.captured_at is None or self.captured_prev_at is None:
            return None
        seconds = (self.captured_at - self.captured_prev_at).total_seconds()
        return seconds if seconds > 0 else None

    def of_role(self, *roles: str) -> tuple[InstanceEvidence, ...]:
        """Return the instances of these roles, in the order of the topology."""
        return tuple(item for item in self.instances if item.role in roles)
