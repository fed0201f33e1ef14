"""The alert rules that come with pdctl, for Prometheus' `rule_files`."""

from __future__ import annotations

from importlib import resources

FILE = "alerts.yml"


def alert_rules() -> str:
    """Return the rules file."""
    return resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
