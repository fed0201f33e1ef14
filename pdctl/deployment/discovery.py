"""Find out what runs at some URLs, by asking; plain GETs only, never a bootstrap or side-channel port."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from pdctl.collect.credentials import api_key
from pdctl.collect.http import InstanceClient
from pdctl.deployment.identify import ASKING, Address, Found, Worker, identify, untold
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.deployment.places import Places, Resolve, system_resolver
from pdctl.errors import CannotTell, NotProven, UsageError
from pdctl.evidence.urls import host_of


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment as it was found, and what could not be told."""

    deployment: Deployment
    notes: tuple[str, ...]


def discover(
    addresses: Sequence[Address],
    *,
    name: str | None = None,
    api_key_file: str | None = None,
    ca_file: str | None = None,
    progress: Callable[[str], None] = lambda line: None,
    must_answer: bool = True,
    resolve: Resolve = system_resolver,
) -> Discovery:
    """Ask every address what it is, and the routers among them for their workers.

    A worker that a router knows by another name or address than the operator is one instance, and keeps the
    operator's; `resolve` tells which are the same.

    Without `must_answer` one that does not answer belongs to the deployment all the same, with the family of the
    others, if its role was said or a router tells it. Raises UsageError (an address twice), NotProven (an address
    that does not answer or is no engine; in any case where none does) and CannotTell (roles or models that no
    endpoint tells).
    """
    _refuse_duplicates(addresses)
    notes: list[str] = []
    key = api_key(api_key_file)
    with ThreadPoolExecutor(max_workers=16) as pool:
        asked = list(pool.map(lambda item: _ask_or_error(item, key, ca_file), addresses))
        found = _answering(asked, must_answer=must_answer)
        progress(f"{len(found)} of {len(addresses)} addresses are engines or routers")
        workers = tuple(worker for item in found for worker in item.workers)
        given = [item.url for item in addresses]
        places = Places((*given, *(worker.url for worker in workers)) if workers else (), resolve)
        revealed = _revealed(workers, given, places, notes)
        trusted = {host_of(item.url) for item in addresses}
        for more in pool.map(
            # The key goes only where the operator sent it: a router may name any host.
            lambda item: _ask_or_error(item, key if host_of(item.url) in trusted else None, ca_file),
            revealed,
        ):
            if isinstance(more, Found):
                found.append(more)
            else:
                notes.append(f"named by the router, left out: {more}")
    for address, answer in zip(addresses, asked, strict=True):
        if isinstance(answer, NotProven):
            notes.append(f"taken all the same: {answer.message}")
            found.append(_silent(address, found))
    return _assembled(found, name, api_key_file, ca_file, notes, places)


def _silent(address: Address, found: Sequence[Found]) -> Found:
    """Return an address that does not answer, as one of the family of the engines that do."""
    engines = [item for item in found if item.role is not Role.ROUTER] or found
    return Found(
        url=address.url,
        dialect=engines[0].dialect,
        role=address.role,
        model=None,
        version=None,
        bootstrap_port=None,
        tp=None,
        transfer=None,
    )


def _ask_or_error(address: Address, key: str | None, ca_file: str | None) -> Found | NotProven:
    with InstanceClient(address.url, key=key, ca_file=ca_file, timeouts=ASKING) as client:
        try:
            return identify(address, client)
        except NotProven as error:
            return error


def _answering(asked: Sequence[Found | NotProven], *, must_answer: bool) -> list[Found]:
    errors = [item for item in asked if isinstance(item, NotProven)]
    if errors and (must_answer or len(errors) == len(asked)):
        words = "\n       ".join(error.message for error in errors)
        raise NotProven(words, errors[0].hint)
    return [item for item in asked if isinstance(item, Found)]


def _refuse_duplicates(addresses: Sequence[Address]) -> None:
    unresolved = Places(())
    seen: list[str] = []
    for address in addresses:
        if known := unresolved.first_same(address.url, seen):
            also = "" if known == address.url else f", as {known} too"
            raise UsageError(f"{address.url} is given twice{also}", "name each instance once")
        seen.append(address.url)


def _revealed(workers: Sequence[Worker], given: Sequence[str], places: Places, notes: list[str]) -> tuple[Address, ...]:
    """Return the routers' workers that were not named; a router knows the roles that vLLM does not tell."""
    roles = {role.value: role for role in Role}
    more: dict[str, Address] = {}
    for worker in workers:
        url = worker.url.rstrip("/")
        known = places.first_same(url, (*given, *more))
        if known is None:
            more[url] = Address(url, roles.get(worker.worker_type or ""))
        elif known != url:
            notes.append(f"{url}, named by the router, is {known}")
    return tuple(more.values())


def _assembled(
    found: Sequence[Found],
    name: str | None,
    api_key_file: str | None,
    ca_file: str | None,
    notes: list[str],
    places: Places,
) -> Discovery:
    told = {worker.url.rstrip("/"): worker for item in found for worker in item.workers}
    completed = [_completed(item, told.get(places.first_same(item.url, told) or "")) for item in found]
    if not any(item.role is Role.PREFILL for item in completed):
        completed = [_alone(item, notes) for item in completed]
    without = [item.url for item in completed if item.role is None]
    if without:
        raise CannotTell(
            f"no endpoint tells the role of {', '.join(without)}",
            f"say it before the URL: prefill={without[0]}, or add the router's URL, which knows its workers",
        )
    models = [item.model for item in completed if item.model]
    if not models:
        raise CannotTell("no endpoint tells the model's name", "is the model loaded? try again when it serves")
    if len(set(models)) > 1:
        notes.append(f"the instances serve different models: {', '.join(sorted(set(models)))}")
    instances = _named(completed, api_key_file, ca_file)
    notes += _gaps(instances, completed)
    # The router's word counts most: it is what clients write.
    model = next((item.model for item in completed if item.role is Role.ROUTER and item.model), models[0])
    deployment = Deployment(name=name or _name_of(model), model=model, instances=instances)
    return Discovery(deployment=deployment, notes=tuple(notes))


def _gaps(instances: Sequence[Instance], found: Sequence[Found]) -> list[str]:
    """Return what nobody told, and which half of a pair is missing."""
    notes = [
        f"{instance.name}: {', '.join(untold(item))} not told"
        for instance, item in zip(instances, found, strict=True)
        if untold(item)
    ]
    roles = {instance.role for instance in instances}
    for one, other in ((Role.PREFILL, Role.DECODE), (Role.DECODE, Role.PREFILL)):
        if one in roles and other not in roles:
            notes.append(f"there is {one.value} but no {other.value}; give its URL too")
    return notes


def _completed(item: Found, worker: Worker | None) -> Found:
    """Fill in what the router knows of an instance and the instance itself does not tell."""
    if worker is None:
        return item
    roles = {role.value: role for role in Role}
    role = item.role or roles.get(worker.worker_type or "")
    port = item.bootstrap_port or (worker.bootstrap_port if role is Role.PREFILL else None)
    return msgspec.structs.replace(item, role=role, bootstrap_port=port)


def _alone(item: Found, notes: list[str]) -> Found:
    """Return an instance as what it is where there is no prefill."""
    if item.role_alone is None:
        return item
    notes.append(f"{item.url} is taken as {item.role_alone}, as there is no prefill; if there is one, give its URL too")
    return msgspec.structs.replace(item, role=item.role_alone)


def _named(found: Sequence[Found], api_key_file: str | None, ca_file: str | None) -> tuple[Instance, ...]:
    """Name the instances ROLE-0, ROLE-1, ... in the order in which they were given."""
    counts: dict[Role, int] = {}
    instances = []
    for item in found:
        assert item.role is not None
        index = counts.get(item.role, 0)
        counts[item.role] = index + 1
        is_first_router = item.role is Role.ROUTER and index == 0
        instances.append(
            Instance(
                name="router" if is_first_router else f"{item.role.value}-{index}",
                role=item.role,
                dialect=item.dialect.name,
                url=item.url,
                bootstrap_port=item.bootstrap_port,
                model=item.model,
                version=item.version,
                tp=item.tp,
                transfer=item.transfer,
                api_key_file=api_key_file,
                ca_file=ca_file,
            )
        )
    return tuple(instances)


def _name_of(model: str) -> str:
    """Return a deployment's name made of the model's: its last part, in the alphabet of names."""
    last = model.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("-._")[:64] or "attached"
