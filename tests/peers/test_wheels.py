"""Each name and each wording of a dialect is in the releases in which its table says so, and in no other.

Nothing is installed: `tests/peers/wheels.py` reads what is needed of the published wheels. `PDCTL_PEER_WHEELS` names a
folder that keeps it from run to run (CONTRIBUTING.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from operator import or_
from typing import TypeVar

import msgspec
import pytest

from pdctl.dialects import dynamo_signals, router_signals, sglang_signals, vllm_signals
from pdctl.dialects.fix_markers import FIX_MARKERS
from pdctl.dialects.signals import Pattern, Series, SignalTable
from pdctl.dialects.versions import parse_release
from tests.peers.wheels import FOLDER, Strings, strings_of
from tests.peers.wordings import parts_of, wordings

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not FOLDER, reason="PDCTL_PEER_WHEELS names no folder for what is read of wheels"),
]


class Published(msgspec.Struct, frozen=True):
    """Where what a table says can be read."""

    table: SignalTable
    packages: tuple[str, ...]
    """All of them together are one release."""
    versions: tuple[str, ...]
    """At the borders of what the table says, and the newest."""
    subsystems: tuple[str, ...] = ()
    """Beginnings that the code puts before its names."""
    elsewhere: tuple[str, ...] = ()
    """Sources of rows that other programs print."""

    def release(self, version: str) -> Strings:
        return reduce(or_, (strings_of(package, version) for package in self.packages))


Row = TypeVar("Row", Series, Pattern)
_ROUTERS = ("hyper", "llm-d", "envoy")

PUBLISHED = (
    Published(
        sglang_signals.SGLANG_SIGNALS,
        ("sglang",),
        ("0.4.7.post1", "0.5.1", "0.5.2", "0.5.3", "0.5.6", "0.5.7", "0.5.9", "0.5.12", "0.5.13", "0.5.15", "0.5.16",
         "0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23"),
        elsewhere=("TokenSpeed", "mooncake multi_transport.cpp", "threads"),
    ),
    Published(
        vllm_signals.VLLM_SIGNALS,
        ("vllm",),
        ("0.9.0", "0.9.2", "0.10.0", "0.10.2", "0.11.0", "0.11.1", "0.11.2", "0.12.0", "0.13.0", "0.14.0", "0.15.0",
         "0.16.0", "0.18.0", "0.20.0", "0.22.0", "0.24.0", "0.26.0", "0.28.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"),
        elsewhere=("uvicorn", "prometheus-fastapi-instrumentator"),
    ),
    Published(
        dynamo_signals.DYNAMO_SIGNALS,
        ("ai-dynamo-runtime", "ai-dynamo"),
        ("1.0.0", "1.0.2", "1.1.1", "1.2.1", "1.3.1", "1.4.2", "1.5.1", "1.6.0", "1.6.1"),
        subsystems=("dynamo_frontend", "dynamo_component"),
        elsewhere=("threads",),
    ),
    Published(router_signals.SMG_SIGNALS, ("smg",), ("1.4.0", "1.8.0", "1.13.0"), elsewhere=_ROUTERS),
    Published(
        router_signals.SMG_SIGNALS,
        ("sglang-router",),
        ("0.2.4", "0.3.0", "0.3.2"),
        elsewhere=_ROUTERS,
    ),
    Published(router_signals.VLLM_ROUTER_SIGNALS, ("vllm-router",), ("0.1.12", "0.1.17"), elsewhere=_ROUTERS),
)  # fmt: skip
EACH = [pytest.param(row, version, id=f"{row.packages[0]}-{version}") for row in PUBLISHED for version in row.versions]


def is_claimed(spans: str, version: str) -> bool:
    """Return whether one of a table's `FIRST-LAST` holds a release; post releases count as theirs."""
    release = parse_release(version)
    assert release is not None
    for span in spans.split(","):
        low, high = (parse_release(text) for text in span.partition("-")[::2])
        if (low is None or low[:3] <= release[:3]) and (high is None or release[:3] <= high[:3]):
            return True
    return False


def own(rows: Iterable[Row], published: Published) -> Iterator[Row]:
    """Yield the rows that this family itself prints."""
    return (row for row in rows if not row.source.startswith(published.elsewhere or ("-",)))


@pytest.mark.parametrize(("published", "version"), EACH)
def test_metrics_are_where_the_table_says_and_nowhere_else(published: Published, version: str) -> None:
    """A histogram is named without `_count` and `_sum`; the client library adds `_total` to a counter."""
    release = published.release(version)
    wrong = [
        f"{row.name} ({row.versions or 'all'}) is {'absent' if is_claimed(row.versions, version) else 'there'}"
        for row in own(published.table.series, published)
        if _is_named(row, release, published.subsystems) is not is_claimed(row.versions, version)
    ]
    assert wrong == []


def _is_named(row: Series, release: Strings, subsystems: tuple[str, ...]) -> bool:
    stems = {row.name, *(row.name.removesuffix(end) for end in ("_total", "_count", "_sum"))}
    if any(release.has_name(stem) for stem in stems):
        return True
    return any(
        stem.startswith(f"{system}_")
        and release.has_name(system)
        and release.is_constant(stem.removeprefix(f"{system}_"))
        for stem in stems
        for system in subsystems
    )


@pytest.mark.parametrize(("published", "version"), EACH)
def test_wordings_are_where_the_table_says_and_nowhere_else(published: Published, version: str) -> None:
    """At least one wording of a pattern has all its constant parts in a release that the row claims."""
    release = published.release(version)
    wrong = []
    for row in own(published.table.patterns, published):
        is_there = any(release.says(wording) for wording in wordings(row.regex))
        if is_there is not is_claimed(row.versions, version):
            wrong.append(f"{row.regex} ({row.versions or 'all'}) is {'there' if is_there else 'absent'}")
    assert wrong == []


@pytest.mark.parametrize("published", PUBLISHED, ids=[row.packages[0] for row in PUBLISHED])
def test_no_alternative_is_invented(published: Published) -> None:
    """Every constant part of every wording is in a release that the row claims, of any family that has the row."""
    wrong = []
    for row in own(published.table.patterns, published):
        claimed = [
            each.release(version)
            for each in PUBLISHED
            if row in each.table.patterns
            for version in each.versions
            if is_claimed(row.versions, version)
        ]
        parts = parts_of(row.regex)
        wrong += [f"{part} of {row.regex}" for part in parts if not any(_has(one, part) for one in claimed)]
    assert wrong == []


@pytest.mark.parametrize("published", PUBLISHED, ids=[row.packages[0] for row in PUBLISHED])
def test_work_lines_and_reports_have_their_keys(published: Published) -> None:
    """The line itself is in every release, each of its keys, and each of a load report, in one at least."""
    releases = [published.release(version) for version in published.versions]
    wrong = []
    for row in published.table.batches:
        wrong += [part for part in parts_of(row.regex) if not any(_has(release, part) for release in releases)]
        wrong += [key for key in row.keys if row.is_pairs and not any(release.has(key) for release in releases)]
        first = wordings(row.regex)[0][0][0]
        wrong += [first for release in releases if not release.has(first)]
    fields = [key.rpartition(".")[2] for key in published.table.loads]
    wrong += [field for field in fields if not any(release.is_constant(field) for release in releases)]
    assert wrong == []


def _has(release: Strings, part: str) -> bool:
    """A pattern takes capital letters or small ones; that one of them is there is enough."""
    return release.has(part) or part.lower() in release.folded


def test_a_fix_is_told_by_a_text_that_came_with_it() -> None:
    """SGLang's prefill understands ABORT since 0.5.16."""
    (marker,) = FIX_MARKERS
    found = {
        version: strings_of("sglang", version).has(marker.text.decode())
        for version in ("0.5.13", "0.5.15", "0.5.16", "0.5.23")
    }
    assert found == {"0.5.13": False, "0.5.15": False, "0.5.16": True, "0.5.23": True}
