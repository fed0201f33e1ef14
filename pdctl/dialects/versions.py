"""Release versions and half-open ranges of them."""

from __future__ import annotations

import re

import msgspec

Release = tuple[int, ...]

_RELEASE = re.compile(r"v?(\d+(?:\.\d+)*)(?:\.post(\d+))?(?:\+[\w.]+)?")


def parse_release(text: str | None) -> Release | None:
    """Return a comparable form of a final or post release (`0.5.15.post1`, `0.32.0+cpu`), else None.

    Development and candidate builds are None: what a release note says of a version need not hold for them.
    """
    match = _RELEASE.fullmatch(text.strip()) if text else None
    if match is None:
        return None
    numbers = [int(part) for part in match[1].split(".")]
    while len(numbers) < 4:
        numbers.append(0)
    return (*numbers, int(match[2] or 0))


class VersionRange(msgspec.Struct, frozen=True):
    """`since` <= version < `before`; an empty bound is open."""

    since: str = ""
    before: str = ""

    def holds(self, version: str | None) -> bool:
        """Return whether `version` lies inside; an unreadable version lies only in the fully open range."""
        if not self.since and not self.before:
            return True
        release = parse_release(version)
        if release is None:
            return False
        low, high = parse_release(self.since), parse_release(self.before)
        return (low is None or low <= release) and (high is None or release < high)
