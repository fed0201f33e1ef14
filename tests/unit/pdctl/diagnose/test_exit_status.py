"""Verdict -> exit status, whatever the form."""

from __future__ import annotations

import msgspec
import pytest

from pdctl.diagnose.exit_status import exit_status
from tests.unit.pdctl.diagnose import incident as make


@pytest.mark.parametrize(
    ("verdict", "status"),
    [("wedged", 1), ("failing", 1), ("degraded", 1), ("not_a_wedge", 0), ("healthy", 0), ("unknown", 3)],
)
def test_each_verdict_has_its_status(verdict: str, status: int) -> None:
    """A wedge without a known cause fails as well."""
    report = msgspec.structs.replace(make.report(make.PAIR), verdict=verdict)
    assert exit_status(report) == status


def test_a_lower_bar_makes_warnings_fail() -> None:
    """`--fail-on warning` turns load into exit 1."""
    log = "[2026-06-19 14:27:00 TP0] Init torch distributed begin.\n[2026-06-19 14:28:30 TP0] Load weight begin.\n"
    report = make.report(make.PAIR, p__log_txt=log, p__http_toml=make.REFUSED_GET)
    assert exit_status(report) == 0
    assert exit_status(report, "warning") == 1
