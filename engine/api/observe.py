"""What the instance says about its state: health, metrics, loads, rooms, ledger. Nothing here can hang."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from engine.api.responses import json_response
from engine.api.service import Phase, Service, service_of
from engine.frontend.observer_client import SchedulerSilent
from engine.observe.metrics import PREFIX, SampleCollector
from engine.observe.records import HealthReport, Ledger, LoadReport, PeerTransfer, RoomList, Sample

Record = TypeVar("Record")

HEALTH_TIMEOUT_S = 0.7
"""Below the second after which the recommended router calls a probe failed."""

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Health(msgspec.Struct, kw_only=True):
    status: str
    """ok | loading | draining | unfit | failed"""
    role: str
    instance: str
    incarnation: str
    problems: list[str] = []
    loop_age_s: float | None = None
    threads: dict[str, bool] = {}
    refused_peers: dict[str, str] = {}


class TransferHealth(msgspec.Struct, kw_only=True):
    status: str
    """ok | failing"""
    role: str
    instance: str
    incarnation: str
    peers: list[PeerTransfer]


async def health(request: Request) -> Response:
    """Answer 200 only if this instance can do its part; the body says which part failed."""
    service = service_of(request)
    answer = await _health(service)
    return json_response(answer, 200 if answer.status == "ok" else 503)


async def transfer_health(request: Request) -> Response:
    """Say for each peer what the last canary READ found; 503 when there are usable peers and none is ok."""
    peers = await _asked(request, "transfer", list[PeerTransfer])
    config = service_of(request).config
    tested = [peer for peer in peers if peer.state not in ("refused", "waiting")]
    is_ok = not tested or any(peer.state == "ok" for peer in tested)
    answer = TransferHealth(
        status="ok" if is_ok else "failing",
        role=config.role,
        instance=config.instance,
        incarnation=config.incarnation,
        peers=peers,
    )
    return json_response(answer, 200 if is_ok else 503)


async def live(request: Request) -> Response:
    """Answer 200 as long as the API process runs; says nothing about service."""
    service = service_of(request)
    return json_response({"status": "alive", "pid": service.pid, "phase": service.phase})


async def metrics(request: Request) -> Response:
    """Return everything in the Prometheus text format, computed now."""
    service = service_of(request)
    samples = _own_samples(service)
    try:
        samples += await _scheduler_samples(service)
        samples.append(Sample(PREFIX + "scheduler_observed", 1))
    except SchedulerSilent:
        samples.append(Sample(PREFIX + "scheduler_observed", 0))
    registry = CollectorRegistry()
    registry.register(SampleCollector(samples))
    return Response(generate_latest(registry), media_type=METRICS_TYPE)


async def loads(request: Request) -> Response:
    """Return queues in numbers and in age."""
    return json_response(await _asked(request, "loads", LoadReport))


async def rooms(request: Request) -> Response:
    """Return the request legs that are live."""
    return json_response(await _asked(request, "rooms", RoomList))


async def recent_rooms(request: Request) -> Response:
    """Return the request legs that ended within the last 60 s, with their stage times."""
    return json_response(await _asked(request, "recent", RoomList))


async def ledger(request: Request) -> Response:
    """Return the KV pages by owner."""
    return json_response(await _asked(request, "ledger", Ledger))


async def _scheduler_samples(service: Service) -> list[Sample]:
    if service.phase in (Phase.LOADING, Phase.FAILED):
        raise SchedulerSilent(service.phase)
    return await service.client.observe("metrics", list[Sample])


async def _asked(request: Request, what: str, record: type[Record]) -> Record:
    service = service_of(request)
    _ = service.ready  # Refuses while loading, rather than waiting for an observer that is not there yet.
    return await service.client.observe(what, record)


async def _health(service: Service) -> Health:
    config, phase = service.config, service.phase
    answer = Health(status=phase, role=config.role, instance=config.instance, incarnation=config.incarnation)
    if phase is Phase.FAILED:
        answer.problems = [service.failure or ""]
    if phase is not Phase.SERVING:
        return answer
    if config.legacy_health:
        answer.status = "ok"
        return answer
    try:
        report = await service.client.observe("health", HealthReport, HEALTH_TIMEOUT_S)
    except SchedulerSilent as error:
        answer.status, answer.problems = "unfit", [str(error)]
        return answer
    answer.status = "ok" if report.ok else "unfit"
    answer.problems, answer.loop_age_s = report.problems, report.loop_age_s
    answer.threads, answer.refused_peers = report.threads, report.refused_peers
    return answer


def _own_samples(service: Service) -> list[Sample]:
    return [
        *service.meters.samples(),
        Sample(PREFIX + "sequences_in_flight", service.client.in_flight),
        Sample(PREFIX + "api_start_time_seconds", service.started_at),
    ]
