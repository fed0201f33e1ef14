"""Each metric of SGLang that we read is in the releases in which the table says so, and in no other.

The wheels are downloaded, never installed; `PDCTL_PEER_WHEELS` names a folder that keeps them from run to run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest

from pdctl.dialects.sglang_signals import SERIES
from pdctl.dialects.versions import parse_release

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif("PDCTL_PEER_WHEELS" not in os.environ, reason="PDCTL_PEER_WHEELS names no folder for wheels"),
]
VERSIONS = ("0.4.7.post1", "0.5.1", "0.5.2", "0.5.3", "0.5.6", "0.5.7", "0.5.9", "0.5.12", "0.5.23")
_PLATFORMS = ("manylinux_2_34_x86_64", "manylinux_2_28_x86_64", "any")


@cache
def source_of(version: str) -> str:
    """Return all Python of a release."""
    folder = Path(os.environ["PDCTL_PEER_WHEELS"])
    if not list(folder.glob(f"sglang-{version}-*.whl")):
        platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        where = ["--python-version", "3.12", *platforms, "--dest", str(folder)]
        subprocess.run([*pip, *where, f"sglang=={version}"], check=True, timeout=280)
    (wheel,) = folder.glob(f"sglang-{version}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".py")]
        return "\n".join(archive.read(name).decode("utf-8", "replace") for name in names)


def is_claimed(span: str, version: str) -> bool:
    """Return whether a table's `FIRST-LAST` holds a release; an empty bound is open, post releases count as theirs."""
    first, _, last = span.partition("-")
    release, low, high = (parse_release(text) for text in (version, first, last))
    assert release is not None
    return (low is None or low[:3] <= release[:3]) and (high is None or release[:3] <= high[:3])


@pytest.mark.parametrize("version", VERSIONS)
def test_metrics_are_where_the_table_says_and_nowhere_else(version: str) -> None:
    """A histogram is named without `_count` and `_sum`; the client library adds `_total` to a counter."""
    source = source_of(version)
    wrong = []
    for row in SERIES:
        stems = {row.name, *(row.name.removesuffix(end) for end in ("_total", "_count", "_sum"))}
        is_there = any(f'"{stem}"' in source or f"'{stem}'" in source for stem in stems)
        if is_there is not is_claimed(row.versions, version):
            wrong.append(f"{row.name} ({row.versions or 'all'}) is {'there' if is_there else 'absent'}")
    assert wrong == []
