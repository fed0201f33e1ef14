"""The names that an incident's own files give: instances, models, units, hosts, the deployment.

As bare words no rule tells them from others, so they are learnt here. A word that is also one of the engines' would
hit their lines and say nothing of anybody; it is none.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pdctl.evidence import host_names, positive_list
from pdctl.evidence.folder import Files

_GENERIC = re.compile(
    r"(?:prefill|decode|router|unified|worker|engine|frontend|server|p|d|smg|sglang|vllm|dynamo|nixl|epp|sidecar|gateway|proxy|"
    r"unknown|default)(?:[-_]?\d+)?",
    re.I,
)
_SERVED = re.compile(rb"""--(?:served-model-name|served-name|model-path|model)["']?[,=\s]\s*["']?([^\s"',]+)""")


def is_generic(name: str) -> bool:
    """Return whether a name says what an instance does and nothing of whose it is."""
    return _GENERIC.fullmatch(name) is not None


class KnownNames(NamedTuple):
    """What has to be searched for."""

    kinds: dict[str, str]
    """Name -> kind; an instance's kind is its role."""
    same: dict[str, str]
    """Another spelling -> the name that it means."""


def known_names(files: Files, hosts: Iterable[str] = ()) -> KnownNames:
    """Return the names of the topology, the folders, the command lines and the logs, and the caller's own hosts."""
    kinds: dict[str, str] = {}
    topology = _topology(files)
    found = topology.get("instance")
    items = [item for item in (found if isinstance(found, list) else ()) if isinstance(item, dict)]
    for item in items:
        for name, kind in _of_instance(item):
            kinds.setdefault(name, kind)
    spellings = [host for item in items for host in host_names.of_instance(item)]
    spellings += sorted({host for data in files.values() for host in host_names.stated_in(data)})
    meant = host_names.same_hosts((*spellings, *hosts))
    others = _of_files(topology, files)
    for name, kind in (*((host, "host") for host in meant.values()), *others):
        kinds.setdefault(name, kind)
    kinds = {name: kind for name, kind in kinds.items() if _is_telling(name)}
    same = {name: host for name, host in meant.items() if host in kinds and name not in kinds and _is_telling(name)}
    return KnownNames(kinds, same)


def _is_telling(name: str) -> bool:
    return bool(name.strip("0123456789")) and not is_generic(name) and not positive_list.is_own_word(name)


def _topology(files: Files) -> dict[str, object]:
    try:
        return tomllib.loads(files.get("topology.toml", b"").decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        return {}


def _of_instance(item: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    role = str(item.get("role") or "instance")
    for key, kind in (("name", role), ("model", "model"), ("unit", "unit")):
        value = item.get(key)
        if isinstance(value, str):
            yield value, kind


def _of_files(topology: Mapping[str, object], files: Files) -> Iterator[tuple[str, str]]:
    if isinstance(topology.get("name"), str):
        yield str(topology["name"]), "deployment"
    for name in sorted(files):
        if "/" in name:
            yield name.partition("/")[0], "instance"
    for data in files.values():
        for match in _SERVED.finditer(data):
            yield match[1].decode("utf-8", "replace"), "model"
