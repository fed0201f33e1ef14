"""The names that an incident's own files give: instances, models, units, hosts, the deployment.

As bare words no rule tells them from others, so they are learnt here. A word that is also one of the engines' would
hit their lines and say nothing of anybody; it is none.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping

from pdctl.evidence import positive_list

Files = Mapping[str, bytes]
_GENERIC = re.compile(
    r"(?:prefill|decode|router|unified|worker|engine|frontend|server|p|d|smg|sglang|vllm|dynamo|nixl|epp|sidecar|gateway|proxy|"
    r"unknown|default)(?:[-_]?\d+)?",
    re.I,
)
_SERVED = re.compile(rb"""--(?:served-model-name|served-name|model-path|model)["']?[,=\s]\s*["']?([^\s"',]+)""")


def is_generic(name: str) -> bool:
    """Return whether a name says what an instance does and nothing of whose it is."""
    return _GENERIC.fullmatch(name) is not None


def known_names(files: Files, hosts: Iterable[str] = ()) -> dict[str, str]:
    """Return name -> kind: of the topology, the folders, the command lines, and the hosts that the caller knows."""
    names: dict[str, str] = {}
    topology = _topology(files)
    found = topology.get("instance")
    for item in found if isinstance(found, list) else ():
        if isinstance(item, dict):
            for name, kind in _of_instance(item):
                names.setdefault(name, kind)
    for name, kind in (*_of_files(topology, files), *((host, "host") for host in hosts)):
        names.setdefault(name, kind)
    return {name: kind for name, kind in names.items() if _is_telling(name)}


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
    more = item.get("hosts")
    for host in (item.get("host"), *(more if isinstance(more, list) else ())):
        if isinstance(host, str) and host != "local":
            yield host.removeprefix("ssh:"), "host"


def _of_files(topology: Mapping[str, object], files: Files) -> Iterator[tuple[str, str]]:
    if isinstance(topology.get("name"), str):
        yield str(topology["name"]), "deployment"
    for name in sorted(files):
        if "/" in name:
            yield name.partition("/")[0], "instance"
    for data in files.values():
        for match in _SERVED.finditer(data):
            yield match[1].decode("utf-8", "replace"), "model"
