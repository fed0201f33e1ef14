"""What is known of a route before anybody calls it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.api.access import Access, Endpoint


@dataclass(frozen=True, slots=True)
class RouteInfo:
    """One route. GET answers HEAD too."""

    method: str
    path: str
    endpoint: Endpoint
    access: Access
    body: Any = None
    """Type of the request's body, where it has one."""
    answer: Any = None
    """Type of the whole answer; None: not described."""
    streams: bool = False
    """`stream: true` is answered by server-sent events."""
    media_type: str = "application/json"
