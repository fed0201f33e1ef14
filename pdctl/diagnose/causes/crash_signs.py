"""What several crash causes ask."""

from __future__ import annotations

from pdctl.diagnose.analyzer import DEATHS, FAILURES, STALLS
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.evidence.records import Place

EXPLAINS = (*DEATHS, *FAILURES, *STALLS, Symptom.UNHEALTHY, Symptom.STARTING, Symptom.STOPPED)


def place(view: InstanceView) -> Place:
    return Place(f"{view.name}/process.toml")
