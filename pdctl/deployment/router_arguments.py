"""What the command line of a router tells of its workers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from pdctl.deployment.layout import LOOPBACK
from pdctl.deployment.model import Instance, Role
from pdctl.evidence.urls import host_of, is_base_url

_ROLES = (("--prefill", Role.PREFILL), ("--decode", Role.DECODE))
_ADDRESSES = (*(flag for flag, _ in _ROLES), "--worker-urls")


def as_loopback(url: str) -> str:
    """Return an address in the form in which engines of this host have theirs."""
    return url.rstrip("/").replace("localhost", "127.0.0.1").replace("0.0.0.0", "127.0.0.1")


def addresses(argv: Sequence[str]) -> set[str]:
    """Return the addresses of all workers that it names."""
    return {url for flag in _ADDRESSES for url in _values(argv, flag)}


def roles(commands: Iterable[Sequence[str]]) -> dict[str, Role]:
    """Return address -> role of the workers that these routers name by role."""
    return {url: role for argv in commands for flag, role in _ROLES for url in _values(argv, flag)}


def missing(told: dict[str, Role], engines: Sequence[Instance]) -> list[Instance]:
    """Return the workers at an address of this host that do not run here, without a name.

    They are of the family of those that do; where none does, or several do, nobody tells their family.
    """
    known = {as_loopback(engine.url) for engine in engines}
    families = {engine.dialect for engine in engines}
    if len(families) != 1:
        return []
    return [
        Instance(name="", role=role, dialect=min(families), url=url)
        for url, role in told.items()
        if url not in known and is_base_url(url) and host_of(url) in LOOPBACK
    ]


def _values(argv: Sequence[str], flag: str) -> list[str]:
    return [as_loopback(word) for before, word in itertools.pairwise(argv) if before == flag]
