"""`pdctl diagnose` on a peer, and what a report names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.pdctl_process import run


def diagnosed(
    home: Path, *arguments: str, where: tuple[str, ...] = ("--file", "pd.toml")
) -> tuple[int, dict[str, Any]]:
    """Return exit code and report of a live diagnosis of the deployment file in `home`, or of URLs."""
    ran = run(home, "diagnose", *where, "-o", "json", *arguments, limit_s=120)
    assert ran.stdout, ran.stderr
    return ran.returncode, json.loads(ran.stdout)


def firm(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return code and instance of the causes that stand."""
    stands = ("established", "supported")
    return [(c["code"], c["subject"]["instance"]) for c in report["causes"] if c["confidence"] in stands]
