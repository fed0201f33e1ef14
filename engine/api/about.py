"""What is served here: /v1/models, /server_info, /model_info. Field names follow SGLang where it has them."""

from __future__ import annotations

from importlib import metadata
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from engine import PROTOCOL_VERSION
from engine.api.responses import json_response
from engine.api.service import Service, service_of
from engine.config import Role

ENGINE_NAME = "pdengine"


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = ENGINE_NAME
    root: str
    max_model_len: int | None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    model_path: str
    tokenizer_path: str
    served_model_name: str
    is_generation: bool = True
    max_context_length: int | None
    vocab_size: int
    has_chat_template: bool
    eos_token_ids: list[int]


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    engine: str = ENGINE_NAME
    version: str
    protocol: int
    instance: str
    incarnation: str
    role: str
    status: str
    model_path: str
    served_model_name: str
    disaggregation_mode: str
    """SGLang's word for the role: prefill | decode | null."""
    disaggregation_bootstrap_port: int | None
    disaggregation_transfer_backend: str = "nixl"
    peers: list[str]
    tp_size: int
    schedule: str
    device: str
    dtype: str
    page_size: int
    chunk_tokens: int
    max_running_requests: int
    max_queued_requests: int
    max_total_num_tokens: int | None
    max_context_length: int | None
    threads: int
    checksums: bool
    prefix_cache: bool
    request_timeout_s: float
    drain_timeout_s: float
    pid: int
    scheduler_pid: int | None
    rank_pids: list[int]
    """The scheduler's processes; the first is `scheduler_pid`."""
    started_at: float
    """Unix time."""
    load_s: float | None
    """Seconds the scheduler took to load the model."""
    control_endpoint: str | None
    contract: dict[str, str] | None
    """What both sides of a transfer must agree on."""


async def models(request: Request) -> Response:
    """Return the one model."""
    return json_response(ModelList(data=[_card(service_of(request))]))


async def model(request: Request) -> Response:
    """Return the model, by its name."""
    service = service_of(request)
    service.check_model(request.path_params["model"])
    return json_response(_card(service))


async def model_info(request: Request) -> Response:
    """Return what the model is."""
    service = service_of(request)
    info = ModelInfo(
        model_path=service.config.model,
        tokenizer_path=service.config.model,
        served_model_name=service.config.served_name,
        max_context_length=_context(service),
        vocab_size=service.tokenizer.vocab_size,
        has_chat_template=service.template is not None,
        eos_token_ids=list(service.tokenizer.eos_ids),
    )
    return json_response(info)


async def server_info(request: Request) -> Response:
    """Return how this instance was started and what it is; keys are never in it."""
    service = service_of(request)
    config = service.config
    ready = service.client.ready.result() if service.client.ready.done() else None
    is_split, is_prefill = config.role is not Role.UNIFIED, config.role is Role.PREFILL
    info = ServerInfo(
        version=engine_version(),
        protocol=PROTOCOL_VERSION,
        instance=config.instance,
        incarnation=config.incarnation,
        role=config.role,
        status=service.phase,
        model_path=config.model,
        served_model_name=config.served_name,
        disaggregation_mode=config.role if is_split else "null",
        disaggregation_bootstrap_port=config.bootstrap_port if is_prefill else None,
        peers=list(config.peers),
        tp_size=config.tp,
        schedule=config.schedule,
        device=config.device,
        dtype=config.dtype,
        page_size=config.page_size,
        chunk_tokens=config.chunk_tokens,
        max_running_requests=config.max_running,
        max_queued_requests=config.max_queued,
        max_total_num_tokens=ready.kv_tokens if ready else None,
        max_context_length=_context(service),
        threads=config.threads,
        checksums=config.checksums,
        prefix_cache=config.prefix_cache,
        request_timeout_s=config.request_timeout_s,
        drain_timeout_s=config.drain_timeout_s,
        pid=service.pid,
        scheduler_pid=next(iter(service.rank_pids), None),
        rank_pids=service.rank_pids,
        started_at=service.started_at,
        load_s=ready.load_s if ready else None,
        control_endpoint=ready.control_endpoint if ready else None,
        contract=ready.contract if ready else None,
    )
    return json_response(info)


def engine_version() -> str:
    """Return the installed version; "source" when run from a checkout that is not installed."""
    try:
        return metadata.version("pdctl")
    except metadata.PackageNotFoundError:
        return "source"


def _card(service: Service) -> ModelCard:
    config, created = service.config, int(service.started_at)
    return ModelCard(id=config.served_name, created=created, root=config.model, max_model_len=_context(service))


def _context(service: Service) -> int | None:
    return service.limits.context_tokens if service.client.ready.done() else None
