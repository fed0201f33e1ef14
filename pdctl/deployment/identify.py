"""Ask one address what it is; plain GETs only, never a bootstrap or side-channel port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import msgspec

from pdctl.collect.http import Answer, InstanceClient, Outcome, Timeouts
from pdctl.deployment.model import Role
from pdctl.dialects.answers import Answers, Scalar, json_value
from pdctl.dialects.catalogue import WORKERS_PATH, asked_paths, recognise
from pdctl.dialects.family import Dialect, Kind, first
from pdctl.errors import NotProven, UsageError
from pdctl.evidence.urls import is_base_url

ASKING = Timeouts(connect_s=2.0, read_s=3.0, write_s=2.0, total_s=4.0)
"""SGLang's /server_info asks the scheduler and hangs with it, so no answer is waited for long."""


class Address(msgspec.Struct, frozen=True):
    """A URL to ask, with the role where the operator said it (`decode=http://...`)."""

    url: str
    role: Role | None = None


class Worker(msgspec.Struct, frozen=True):
    """What a router says of one of its workers."""

    url: str
    worker_type: str | None = None
    bootstrap_port: int | None = None


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What one URL turned out to be."""

    url: str
    dialect: Dialect
    role: Role | None
    role_alone: Role | None = None
    """What it is instead where no instance of the deployment is a prefill, and nobody said its role."""
    model: str | None
    version: str | None
    bootstrap_port: int | None
    tp: int | None
    transfer: str | None
    workers: tuple[Worker, ...] = ()
    """Of a router."""


def parse_address(text: str) -> Address:
    """Return the address behind an argument `[ROLE=]URL`; `HOST:PORT` means http. Raises UsageError."""
    word, is_role, rest = text.partition("=")
    roles = {role.value: role for role in Role}
    role = roles.get(word) if is_role else None
    given = rest if role is not None else text
    url = given if "://" in given else f"http://{given}"
    if not is_base_url(url):
        raise _no_address(text)
    parts = urlsplit(url)
    if parts.path.strip("/") or parts.query or parts.fragment or parts.username:
        raise _no_address(text)
    return Address(f"{parts.scheme}://{parts.netloc.lower()}", role)


def _no_address(text: str) -> UsageError:
    return UsageError(
        f"{text!r} is not an instance's address",
        "write http://HOST:PORT, with the role before it where no endpoint tells: decode=http://HOST:PORT",
    )


def identify(address: Address, client: InstanceClient) -> Found:
    """Return what an instance is. Raises NotProven when it does not answer or is nothing pdctl knows."""
    answers, failures = _answers(client)
    if not answers:
        raise NotProven(f"{address.url} does not answer: {_most_telling(failures)}", _HINTS.get(failures[0].outcome))
    dialect = recognise(answers)
    if dialect is None:
        raise NotProven(
            f"{address.url} answers, but is no engine or router that pdctl knows",
            "give the address of an engine's or router's HTTP port, not of a metrics or bootstrap port",
        )
    word = _text(first(dialect.role, answers))
    said = Role.ROUTER if dialect.kind is Kind.ROUTER else _role(dialect.roles, word)
    alone = _role(dialect.roles_alone, word)
    if address.role and said and address.role not in (said, alone):
        raise NotProven(f"{address.url} says that it is {said}, not {address.role}", f"give {said}={address.url}")
    role = address.role or said
    return Found(
        url=address.url,
        dialect=dialect,
        role=role,
        role_alone=None if address.role else alone,
        model=_text(first(dialect.model, answers)),
        version=_text(first(dialect.version, answers)),
        bootstrap_port=_number(first(dialect.bootstrap_port, answers)) if role is Role.PREFILL else None,
        tp=_number(first(dialect.tp, answers)),
        transfer=_text(first(dialect.transfer, answers)),
        workers=_workers(answers) if dialect.kind is Kind.ROUTER else (),
    )


_HINTS = {
    Outcome.REFUSED: "nobody listens there: check the port, and whether the process runs",
    Outcome.TIMEOUT: "something may listen there but does not answer: frozen, hung, or cut off",
    Outcome.DNS: "check the host name",
    Outcome.TLS: "check http/https, and give the certificate authority with --ca-file",
}


def _answers(client: InstanceClient) -> tuple[dict[str, bytes], list[Answer]]:
    """Return the bodies by path, and the exchanges that failed; all paths are asked at once."""
    paths = asked_paths()
    with ThreadPoolExecutor(max_workers=len(paths)) as pool:
        exchanges = list(pool.map(client.get, paths))
    bodies = {
        path: answer.body for path, answer in zip(paths, exchanges, strict=True) if answer.outcome is Outcome.ANSWERED
    }
    return bodies, [answer for answer in exchanges if answer.outcome is not Outcome.ANSWERED]


def untold(item: Found) -> tuple[str, ...]:
    """Return what the endpoints did not tell and somebody will miss."""
    wanted: list[tuple[str, object]] = [("version", item.version), ("model", item.model)]
    if item.role is not Role.ROUTER:
        wanted += [("role", item.role), ("tp", item.tp)]
    if item.role is Role.PREFILL and item.dialect.bootstrap_port:
        wanted.append(("bootstrap port", item.bootstrap_port))
    return tuple(word for word, value in wanted if value is None)


def _workers(answers: Answers) -> tuple[Worker, ...]:
    """Return the rows that name an address that can be asked; another costs itself only."""
    listed = json_value(answers.get(WORKERS_PATH, b""), ("workers",))
    rows = (_worker(row) for row in (listed if isinstance(listed, list) else []))
    return tuple(row for row in rows if row is not None and is_base_url(row.url))


def _worker(row: object) -> Worker | None:
    try:
        return msgspec.convert(row, Worker)
    except msgspec.ValidationError:
        return None


def _role(roles: Mapping[str, str], word: str | None) -> Role | None:
    role = roles.get(word or "")
    return Role(role) if role else None


def _most_telling(failures: Sequence[Answer]) -> str:
    failure = failures[0]
    return failure.outcome.value + (f" ({failure.error})" if failure.error else "")


def _text(value: Scalar | None) -> str | None:
    return None if value is None else str(value)


def _number(value: Scalar | None) -> int | None:
    try:
        return None if value is None else int(value)
    except (ValueError, OverflowError):
        return None
