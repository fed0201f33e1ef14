"""The hosts that an incident's own files name: as an operator wrote them, and as kernels and libraries state them.

Without a domain no rule tells them from other words, so they have to be known.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping

from pdctl.evidence.urls import host_of

_STATED = (
    # The journal and syslog: `Jun 19 14:30:01 gpu7 kernel: ...`
    rb"(?m)^\[?(?:[A-Z][a-z]{2} [ \d]\d [\d:]{8}|\d{4}-\d\d-\d\dT\S+)\]? ([\w.-]+) (?:kernel:|[\w./@-]+\[\d+\]:)",
    # NCCL: `gpu7:2209:2209 [0] NCCL INFO ...`; UCX: `[1689083051.12] [gpu7:703  :0] ... UCX  ERROR ...`
    rb"(?<![\w.-])([\w.-]+):\d+:\d+ \[\d+\] NCCL ",
    rb"\[([\w.-]+):\d+ *:\d+\][^\n]* UCX ",
    rb"(?:dist[-_]init|nccl[-_]init|master|data[-_]parallel)[-_]addr(?:ess)?[\"']?[,=\s]\s*[\"']?(?:tcp://)?([A-Za-z][\w.-]*)",
)
_PATTERNS = tuple(re.compile(pattern) for pattern in _STATED)
_LEAST_LETTERS = 4
"""A shorter word would hit innocent text."""
_EVERYBODYS = (
    "localhost ip6-localhost local host node nodes master main head leader kernel systemd server client cluster "
    "docker podman nerdctl kubectl crictl exec bash dash sudo nsenter container pods kubernetes service model test "
    "prod http https none null true false info warn warning error debug trace critical"
)
_COMMON = frozenset(_EVERYBODYS.split())
"""Words that are hosts of everybody's, tools that lead into one, and what stands where a host could."""


def of_instance(item: Mapping[str, object]) -> Iterator[str]:
    """Yield the hosts of a table of the topology as they are spelt there, users before an `@` with them."""
    more = item.get("hosts")
    for place in (item.get("host"), *(more if isinstance(more, list) else ())):
        if isinstance(place, str) and place not in ("", "local"):
            yield place.removeprefix("ssh:")
            if place.startswith("exec:"):
                yield from _words(place.removeprefix("exec:"))
    for key in ("url", "metrics_url"):
        url = item.get(key)
        if isinstance(url, str) and (host := host_of(url)):
            start = url.lower().find(host)
            yield url[start : start + len(host)]


def stated_in(data: bytes) -> Iterator[str]:
    """Yield the hosts that the lines of a file state: its own, and where its ranks meet."""
    for pattern in _PATTERNS:
        for match in pattern.finditer(data):
            yield match[1].decode()


def same_hosts(spellings: Iterable[str]) -> dict[str, str]:
    """Return spelling -> the host that it means: `ops@gpu7.acme` and `gpu7` are `gpu7.acme`, `10.0.0.1` is no name.

    A short form of several hosts means itself. What is too common or too short to be searched for is left out.
    """
    found: dict[str, str] = {}
    shorts: dict[str, set[str]] = {}
    for spelling in spellings:
        host = spelling.rpartition("@")[2] if " " not in spelling else spelling
        if not _is_name(host):
            continue
        found[host] = found[spelling] = host
        found.setdefault(host.lower(), host)
        if "." in host and " " not in host:
            shorts.setdefault(host.partition(".")[0], set()).add(host)
    for short, hosts in shorts.items():
        if _is_name(short):
            found[short] = short if len(hosts) > 1 else min(hosts)
    return {spelling: found[host] for spelling, host in found.items()}


def _words(command: str) -> Iterator[str]:
    """Yield what a command that leads into a container may call it; options and paths are none."""
    try:
        words = shlex.split(command)[1:]
    except ValueError:
        return
    for word in words:
        if not word.startswith("-"):
            yield word.rpartition("/")[2]


def _is_name(word: str) -> bool:
    if len(word) < _LEAST_LETTERS or not re.search("[A-Za-z]", word) or word.lower() in _COMMON:
        return False
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return True
    return False
