"""Fetch one large file over HTTP, going on where an earlier attempt stopped."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pdctl.deployment.package_index import without_password
from pdctl.errors import PdctlError

if TYPE_CHECKING:
    import httpx

ATTEMPTS = 4
"""Broken connections in a row, without a byte in between, before giving up for now."""

ByteProgress = Callable[[int, int | None], None]
"""Told (bytes there, bytes in all if known)."""


def fetch(client: httpx.Client, url: str, part: Path, progress: ByteProgress) -> None:
    """Make `part` the complete file at `url`; what is already in it is kept and not fetched again.

    A broken connection is taken up again at once; if that fails too, `part` stays for the next call. A full
    disk removes it. Raises PdctlError.
    """
    import httpx

    failures = 0
    while True:
        size_before = _size(part)
        try:
            _fetch_rest(client, url, part, progress)
            return
        except httpx.HTTPError as error:
            failures = 1 if _size(part) > size_before else failures + 1
            if failures >= ATTEMPTS:
                raise _broken_off(url, part, str(error) or type(error).__name__) from error
        except OSError as error:
            raise disk_failure(error, part) from error


def disk_failure(error: OSError, *halves: Path) -> PdctlError:
    """Explain a failed write and remove what is half written: on a full disk it is in the way."""
    for half in halves:
        half.unlink(missing_ok=True)
    folder = halves[0].parent
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return PdctlError(
            f"no room left in {folder}; nothing half written was kept",
            "free 200 MB there, or set XDG_CACHE_HOME to a folder on another disk",
        )
    return PdctlError(f"cannot write to {folder}: {error.strerror}", "set XDG_CACHE_HOME to another folder")


def _fetch_rest(client: httpx.Client, url: str, part: Path, progress: ByteProgress) -> None:
    there = _size(part)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={there}-"} if there else {})
    with client.stream("GET", url, headers=headers) as response:
        if response.status_code == 416:
            # Nothing after what we have: either it is complete, or it is of another file.
            if _total(response) != there:
                part.unlink()
                raise _broken_off(url, part, "the kept part does not fit, and was removed")
            return
        if response.status_code not in (200, 206):
            raise _broken_off(url, part, f"status {response.status_code}")
        is_rest = response.status_code == 206 and _first_byte(response) == there
        done = there if is_rest else 0
        length = response.headers.get("content-length")
        total = done + int(length) if length else None
        with part.open("ab" if is_rest else "wb") as file:
            progress(done, total)
            for block in response.iter_raw():
                file.write(block)
                done += len(block)
                progress(done, total)


def _first_byte(response: httpx.Response) -> int | None:
    found = re.match(r"bytes (\d+)-", response.headers.get("content-range", ""))
    return int(found[1]) if found else None


def _total(response: httpx.Response) -> int | None:
    found = re.search(r"/(\d+)$", response.headers.get("content-range", ""))
    return int(found[1]) if found else None


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _broken_off(url: str, part: Path, reason: str) -> PdctlError:
    return PdctlError(
        f"fetching {without_password(url)} stopped after {_size(part) / 1e6:.1f} MB: {reason}",
        "run the same command again: it goes on from there",
    )
