"""Collector: what GETs of an instance's endpoints answer, with latencies; load reports and room lists with them."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from pdctl.collect.concurrency import all_of
from pdctl.collect.context import Context
from pdctl.collect.endpoints import LOADS, Endpoint, endpoints_of
from pdctl.collect.http import Answer, Outcome
from pdctl.collect.records import Status, Taken
from pdctl.collect.target import Target
from pdctl.evidence import toml_text
from pdctl.evidence.credentials import Credentials

BODY_KEPT_BYTES = 16 << 10


def file_names(target: Target, *, is_first: bool) -> tuple[str, ...]:
    """Return the files that `take` makes."""
    kept = (item.file for item in _asked(target, is_first) if item.file)
    return (_http_name(is_first), *dict.fromkeys(_file_name(name, is_first) for name in kept))


async def take(target: Target, context: Context, *, is_first: bool) -> list[Taken]:
    """Ask everything at once. The first sample asks only what changes from moment to moment."""
    timeout_s = context.deadline.at_most(context.get_timeout_s)
    groups = _spellings(_asked(target, is_first))
    asked = await all_of(_ask(target, context, group, timeout_s) for group in groups)
    rows = [_row(target, endpoint, answer, timeout_s) for group in asked for endpoint, answer in group]
    taken = [Taken(name=_http_name(is_first), content=toml_text.document({}, {"get": rows}))]
    for group in asked:
        endpoint, answer = group[-1]
        if endpoint.file:
            taken.append(_kept(_file_name(endpoint.file, is_first), answer))
    return taken


def _spellings(endpoints: Sequence[Endpoint]) -> list[list[Endpoint]]:
    """Group the endpoints that are one thing under several names, newest name first."""
    groups: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        place = f":{endpoint.path}" if endpoint.is_registry else endpoint.path
        groups.setdefault(endpoint.file or place, []).append(endpoint)
    return list(groups.values())


def _asked(target: Target, is_first: bool) -> tuple[Endpoint, ...]:
    every = endpoints_of(target.instance)
    # Of the first sample only queues and health are compared with the second.
    return tuple(item for item in every if item.is_live and item.file in ("", LOADS)) if is_first else every


def _http_name(is_first: bool) -> str:
    return "http.prev.toml" if is_first else "http.toml"


def _file_name(name: str, is_first: bool) -> str:
    return name.replace(".json", ".prev.json") if is_first else name


async def _ask(
    target: Target, context: Context, spellings: Sequence[Endpoint], timeout_s: float
) -> list[tuple[Endpoint, Answer]]:
    """Ask the next name only where the one before is not known."""
    asked: list[tuple[Endpoint, Answer]] = []
    for endpoint in spellings:
        base_url = registry_url(target) if endpoint.is_registry else ""
        answer = await context.fetcher.get(target.instance, endpoint.path, base_url=base_url, deadline_s=timeout_s)
        asked.append((endpoint, answer))
        if answer.status != 404:
            break
    return asked


def registry_url(target: Target) -> str:
    """Return the address of a prefill's registry: the same host, the bootstrap port."""
    parts = urlsplit(target.instance.url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"http://{host}:{target.instance.bootstrap_port}"


def _row(target: Target, endpoint: Endpoint, answer: Answer, timeout_s: float) -> dict[str, object]:
    place = f":{target.instance.bootstrap_port}{endpoint.path}" if endpoint.is_registry else endpoint.path
    is_whole = answer.outcome in (Outcome.ANSWERED, Outcome.TOO_LARGE)
    shows_body = not endpoint.file or answer.status != 200
    # Masked here already: inside a TOML string its quotes are others, and a cut could fall into a secret.
    body = Credentials().without(answer.body)[:BODY_KEPT_BYTES] if answer.body and shows_body else None
    return {
        "path": place,
        "status": answer.status if is_whole else None,
        "took_ms": answer.took_ms,
        "timeout_ms": round(timeout_s * 1000),
        "error": None if answer.outcome is Outcome.ANSWERED else answer.outcome.value,
        "detail": answer.error,
        "date": answer.headers.get("date"),
        "body": body.decode("utf-8", "replace") if body is not None else None,
    }


def _kept(name: str, answer: Answer) -> Taken:
    if answer.ok and answer.body:
        return Taken(name=name, content=answer.body, took_ms=answer.took_ms)
    return Taken(name=name, status=_status(answer), error=answer.describe(), took_ms=answer.took_ms)


def _status(answer: Answer) -> Status:
    if answer.outcome is Outcome.TIMEOUT:
        return Status.TIMEOUT
    return {401: Status.DENIED, 403: Status.DENIED, 404: Status.ABSENT}.get(answer.status or 0, Status.FAILED)
