"""Who may call a route. Keys are compared in constant time and come from files, never from flags."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable
from enum import StrEnum

from starlette.requests import Request
from starlette.responses import Response

from engine.api.service import service_of
from engine.config import EngineConfig, Role
from engine.errors import ConfigError, RequestError

Endpoint = Callable[[Request], Awaitable[Response]]


class Access(StrEnum):
    OPEN = "open"
    """Anybody who reaches the port: health, metrics, what is served."""
    KEY = "key"
    """The API key, where one is set."""
    ADMIN = "admin"
    """The admin key, or a client on this machine."""


def guarded(endpoint: Endpoint, access: Access) -> Endpoint:
    """Return `endpoint` behind its check; a refusal is 401 (no or a wrong key) or 403 (no key could do)."""

    async def checked(request: Request) -> Response:
        config = service_of(request).config
        if access is Access.KEY:
            _check_key(request, config)
        elif access is Access.ADMIN:
            _check_admin(request, config)
        return await endpoint(request)

    return checked


def is_loopback(host: str) -> bool:
    """Return whether an address or name means this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(config: EngineConfig) -> None:
    """Raise ConfigError when the instance would be open to other machines without its keys."""
    if is_loopback(config.host) or config.insecure:
        return
    needed = {"--api-key-file": config.api_key}
    if config.role is not Role.UNIFIED:
        needed["--control-key-file"] = config.control_key
    missing = [flag for flag, key in needed.items() if key is None]
    if missing:
        raise ConfigError(
            f"--host {config.host}: other machines could reach this instance without a key; "
            f"give {' and '.join(missing)}, bind 127.0.0.1, or accept it with --insecure"
        )


def _check_key(request: Request, config: EngineConfig) -> None:
    if config.api_key is not None and not _has_key(request, config.api_key):
        raise RequestError(401, "invalid_api_key", "a valid 'Authorization: Bearer KEY' is needed")


def _check_admin(request: Request, config: EngineConfig) -> None:
    # A browser names the page that sent it: no web page may drain this machine's engine.
    is_page = "origin" in request.headers
    if request.client is not None and is_loopback(request.client.host) and not is_page:
        return
    if config.admin_key is None:
        message = f"{request.url.path} is for clients on this machine: no --admin-key-file is set"
        raise RequestError(403, "admin_only", message)
    if not _has_key(request, config.admin_key):
        raise RequestError(401, "invalid_admin_key", "'Authorization: Bearer ADMIN_KEY' is needed")


def _has_key(request: Request, key: str) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), key.encode())
