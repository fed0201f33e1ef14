"""Every family, in the order in which answers are held against them."""

from __future__ import annotations

from pdctl.dialects.answers import Answers
from pdctl.dialects.dynamo import FRONTEND, WORKER
from pdctl.dialects.family import Capability, Dialect, Kind, Support
from pdctl.dialects.pdctl import PDCTL
from pdctl.dialects.sglang import SGLANG
from pdctl.dialects.smg import SMG
from pdctl.dialects.vllm import VLLM
from pdctl.dialects.vllm_router import VLLM_ROUTER

# Routers first: they pass questions on to a worker. Dynamo before the engines whose series it re-exports.
FAMILIES: tuple[Dialect, ...] = (VLLM_ROUTER, SMG, FRONTEND, WORKER, PDCTL, SGLANG, VLLM)

WORKERS_PATH = "/workers"
"""Where smg and vllm-router list their workers."""


def recognise(answers: Answers) -> Dialect | None:
    """Return the first family whose sign the answers show."""
    return next((family for family in FAMILIES if family.recognises(answers)), None)


def family(name: str, kind: Kind = Kind.ENGINE) -> Dialect | None:
    """Return the family of a dialect name in a deployment file; None when pdctl has no table for it."""
    return next((item for item in FAMILIES if item.name == name and item.kind == kind), None)


def capability(
    name: str, kind: Kind, ability: Capability, version: str | None, transfer: str | None = None
) -> tuple[Support, str]:
    """Return what is known of an ability of a dialect, and the source; a dialect without table is unknown."""
    found = family(name, kind)
    if found is None:
        return Support.UNKNOWN, f"pdctl has no table for {name}"
    return found.capability(ability, version, transfer)


def asked_paths() -> tuple[str, ...]:
    """Return every endpoint that recognising needs, each once; all of them are plain GETs."""
    every = (path for item in FAMILIES for path in item.paths())
    return tuple(dict.fromkeys((*every, WORKERS_PATH)))
