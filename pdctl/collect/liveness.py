"""Ask instances whether they are well and how long their queues are; bounded in time whatever they do."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from pdctl.deployment.model import Instance, Role

if TYPE_CHECKING:
    import httpx

BODY_MOST_BYTES = 1 << 20


class Loads(msgspec.Struct, frozen=True, kw_only=True):
    """What we show of an engine's `/v1/loads`."""

    running: int = 0
    waiting: int = 0
    oldest_age_s: dict[str, float] = {}

    @property
    def oldest_s(self) -> float:
        """Return the age of the oldest request in any queue, 0 with none."""
        return max(self.oldest_age_s.values(), default=0.0)


class _HealthBody(msgspec.Struct, frozen=True, kw_only=True):
    problems: list[str] = []
    status: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one instance said; `problem` is None exactly when it is well."""

    problem: str | None
    took_ms: float
    loads: Loads | None = None

    @property
    def is_well(self) -> bool:
        return self.problem is None


def ask_all(instances: Iterable[Instance], timeout_s: float, *, with_loads: bool = True) -> dict[str, Answer]:
    """Ask all instances at once; takes at most `timeout_s` in all, even if they trickle or hang."""
    return asyncio.run(_ask_all(tuple(instances), timeout_s, with_loads))


def health_path(instance: Instance) -> str:
    """Return the path whose 200 means that the instance can do its part.

    smg answers /health with 200 while it has no worker; its /readiness does not.
    """
    return "/readiness" if instance.role is Role.ROUTER and instance.dialect == "smg" else "/health"


async def _ask_all(instances: tuple[Instance, ...], timeout_s: float, with_loads: bool) -> dict[str, Answer]:
    answers = await asyncio.gather(*(_ask(instance, timeout_s, with_loads) for instance in instances))
    return dict(zip((instance.name for instance in instances), answers, strict=True))


async def _ask(instance: Instance, timeout_s: float, with_loads: bool) -> Answer:
    import httpx  # 130 ms of CPU: only when something is asked

    started = time.perf_counter()
    loads = None
    try:
        # Engines are on this machine or near it: a proxy from the environment would only mislead.
        async with (
            asyncio.timeout(timeout_s),
            httpx.AsyncClient(trust_env=False, timeout=timeout_s, verify=_verify(instance)) as client,
        ):
            status, body = await _get(client, instance.url + health_path(instance))
            problem = None if status == 200 else _problem(status, body)
            if with_loads and instance.dialect == "pdctl" and instance.role is not Role.ROUTER:
                loads = await _loads(client, instance.url + "/v1/loads")
    except TimeoutError:
        problem = f"no answer within {timeout_s:g} s"
    except httpx.TimeoutException:
        problem = f"no answer within {timeout_s:g} s"
    except httpx.ConnectError as error:
        problem = "refused" if "refused" in str(error).lower() or "attempts failed" in str(error) else str(error)
    except httpx.HTTPError as error:
        problem = str(error) or type(error).__name__
    except OSError as error:
        problem = f"ca_file {instance.ca_file}: {error.strerror}"
    return Answer(problem, 1000 * (time.perf_counter() - started), loads)


def _verify(instance: Instance) -> ssl.SSLContext | bool:
    # Loading the system's certificates costs 20 ms at each poll; plain HTTP needs none.
    if not instance.url.startswith("https:"):
        return False
    return ssl.create_default_context(cafile=instance.ca_file) if instance.ca_file else True


async def _get(client: httpx.AsyncClient, url: str) -> tuple[int, bytes]:
    body = b""
    async with client.stream("GET", url) as response:
        async for block in response.aiter_bytes():
            body += block
            if len(body) > BODY_MOST_BYTES:
                break
    return response.status_code, body


async def _loads(client: httpx.AsyncClient, url: str) -> Loads | None:
    status, body = await _get(client, url)
    try:
        return msgspec.json.decode(body, type=Loads) if status == 200 else None
    except msgspec.DecodeError:
        return None


def _problem(status: int, body: bytes) -> str:
    """Return why a health answer is not 200, in the engine's own words where it has some."""
    try:
        said = msgspec.json.decode(body, type=_HealthBody)
        words = "; ".join(said.problems) or said.reason or said.status
    except msgspec.DecodeError:
        words = body[:80].decode(errors="replace").strip()
    return f"{status}: {words}" if words else str(status)
