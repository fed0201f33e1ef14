"""PD0305: an instance is stopped. The kernel and its TCP stack answer, it does not."""

from __future__ import annotations

from pdctl.diagnose.analyzer import DEATHS, EVERYONE, FAILURES, STALLS, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.evidence.records import Place


def _stopped(case: Case, view: InstanceView) -> Answer:
    states = [item.state for item in view.processes if item.state]
    place = Place(f"{view.name}/process.toml")
    if not states:
        return unknown(f"the processes of {view.name} are not known")
    count = states.count("T")
    if count:
        return yes(
            f"{count} of {len(states)} processes of {view.name} are stopped (state T)",
            Kind.PROCESS,
            place,
            count,
        )
    return no(f"no process of {view.name} is stopped", Kind.PROCESS, place, 0)


def _does_not_answer(case: Case, view: InstanceView) -> Answer:
    if not view.raw.gets:
        return unknown(f"nobody asked {view.name}")
    hanging = [item for item in view.raw.gets if item.error == "timeout"]
    place = Place(f"{view.name}/http.toml")
    if len(hanging) == len(view.raw.gets):
        return yes(f"{view.name} accepts connections and answers nothing", Kind.HTTP, place, len(hanging))
    return no(f"{view.name} answers", Kind.HTTP, place)


ANALYZER = Analyzer(
    code="PD0305",
    roles=EVERYONE,
    inputs=(Kind.PROCESS, Kind.HTTP),
    explains=(*STALLS, *FAILURES, *DEATHS, Symptom.STOPPED, Symptom.UNHEALTHY),
    checks=(
        requires("a process is stopped", _stopped),
        proves("a process is stopped", _stopped),
        suggests("it answers nothing", _does_not_answer),
    ),
)
