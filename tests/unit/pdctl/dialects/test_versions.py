"""Release numbers and ranges."""

from __future__ import annotations

import pytest

from pdctl.dialects.versions import VersionRange, parse_release


@pytest.mark.parametrize(
    ("lower", "higher"),
    [("0.5.9", "0.5.10"), ("0.5.15", "0.5.15.post1"), ("0.5.15.post1", "0.5.16"), ("0.5", "0.5.1")],
)
def test_order(lower: str, higher: str) -> None:
    """Numbers count as numbers, and a post release lies between its base and the next."""
    low, high = parse_release(lower), parse_release(higher)
    assert low is not None
    assert high is not None
    assert low < high


def test_missing_zeros_and_local_parts_do_not_count() -> None:
    """0.32.0+cpu is 0.32."""
    assert parse_release("0.32.0+cpu") == parse_release("v0.32")


@pytest.mark.parametrize("text", [None, "", "source", "0.5.16rc1", "0.6.0.dev3", "main"])
def test_unfinished_versions_are_unknown(text: str | None) -> None:
    """A build between releases is in no bounded range, for nobody knows what it has."""
    assert parse_release(text) is None
    assert not VersionRange("0.5.13", "0.5.16").holds(text)
    assert VersionRange().holds(text)


def test_range_is_half_open() -> None:
    """The first version belongs to a range, the last does not."""
    affected = VersionRange("0.5.13", "0.5.16")
    inside = ["0.5.13", "0.5.14", "0.5.15", "0.5.15.post1"]
    outside = ["0.5.12.post1", "0.5.16", "0.6.0"]
    assert [affected.holds(version) for version in inside] == [True] * 4
    assert [affected.holds(version) for version in outside] == [False] * 3
