"""The alert rules, by Prometheus' own tool."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pdctl.watch.alerts import alert_rules
from tests.unit.pdctl.watch.test_exporter import SIGHT, scraped

CASES = Path(__file__).with_name("alerts_test.yml")


@pytest.fixture
def promtool() -> str:
    """Where promtool is; absent, the test is skipped, or fails when CI=true."""
    found = shutil.which("promtool")
    if found is None:
        message = "promtool is not here: install Debian's package prometheus"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return found


def test_rules_are_right_and_alarm_when_they_should(promtool: str, tmp_path: Path) -> None:
    """`promtool check rules`, and its unit tests over time."""
    (tmp_path / "alerts.yml").write_text(alert_rules())
    shutil.copy(CASES, tmp_path)
    for command in (("check", "rules", "--lint-fatal", "alerts.yml"), ("test", "rules", CASES.name)):
        ran = subprocess.run([promtool, *command], cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_rule_has_a_case() -> None:
    """A rule without one may never alarm."""
    rules = set(re.findall(r"alert: (\w+)", alert_rules()))
    assert rules == set(re.findall(r"alertname: (\w+)", CASES.read_text()))


def test_rules_rest_on_metrics_that_the_watch_has() -> None:
    """Each name in an expression is one that is exported, with the labels that the texts use."""
    exported = {key[0] for key in scraped(SIGHT)} | {"pdctl_watch_canaries_total", "pdctl_watch_oldest_seconds"}
    names = set(re.findall(r"pdctl_watch_\w+", alert_rules()))
    assert names <= exported
