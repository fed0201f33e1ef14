"""PD0309, PD0313: answers are wrong though everything says 200."""

from __future__ import annotations

from pdctl.diagnose.analyzer import ENGINES, FAILURES, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.predicates import alive, grew, logged, nobody_gone, says
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Event
from pdctl.evidence.records import OWN_REQUEST, Probe

_EXPLAINS = (Symptom.WRONG_OUTPUT, Symptom.DAMAGE, *FAILURES)


def _wrong_answer(case: Case, view: InstanceView) -> Answer:
    wrong = [probe for probe in case.probes if probe.output == "garbled" and probe.status == 200]
    judged = [probe for probe in wrong if not _may_be_ignorance(case, probe)]
    if judged:
        return yes("a request got status 200 and a wrong answer", Kind.PROBE, value=len(judged))
    if wrong:
        return unknown("a known answer was not given; the model may not know it, or be a mock")
    if any(probe.output in ("same", "close") for probe in case.probes):
        return no("the probe's answer was right", Kind.PROBE)
    return unknown("no answer was compared")


def _may_be_ignorance(case: Case, probe: Probe) -> bool:
    """Return whether a probe of ours asked a question of an engine that cannot score: a weak model answers it wrong."""
    return (probe.id or "").startswith(OWN_REQUEST) and not any(view.raw.dialect == "pdctl" for view in case.engines)


def _does_not_know(case: Case, view: InstanceView) -> Answer:
    wrong = [probe for probe in case.probes if probe.output == "garbled" and _may_be_ignorance(case, probe)]
    if wrong:
        return yes("a question with a known answer was answered wrong", Kind.PROBE, value=len(wrong))
    return unknown("no question was answered wrong")


def _one_room_two_lengths(case: Case, view: InstanceView) -> Answer:
    """The same room with different prompt lengths on the two sides."""
    own = {item.group("room"): item for item in view.events(Event.TIME_STATS)}
    for peer in case.peers(view):
        for item in peer.events(Event.TIME_STATS):
            other = own.get(item.group("room"))
            if other is not None and other.group("tokens") != item.group("tokens"):
                lengths = f"{other.group('tokens')} tokens on {view.name}, {item.group('tokens')} on {peer.name}"
                text = f"room {item.group('room')[-6:]}: {lengths}"
                return yes(text, Kind.LOG, other.place)
    return unknown("no room is seen on both sides with its length")


def _checksum(case: Case, view: InstanceView) -> Answer:
    """The engine compared what arrived with what was sent."""
    found = [item for item in view.events(Event.CORRUPTION) if "Requested address" not in item.text]
    if found:
        return yes(f"{view.name}: {found[-1].text[:100]}", Kind.LOG, found[-1].place, len(found))
    return unknown("no engine compared what arrived")


def _counts_damaged(case: Case, view: InstanceView) -> Answer:
    counted = grew(view, Counter.DAMAGED, "transfers whose checksum was wrong")
    return counted if counted.is_true else unknown(counted.text)


PAGE = Analyzer(
    code="PD0309",
    roles=ENGINES,
    inputs=(Kind.PROBE, Kind.LOG, Kind.METRICS, Kind.HTTP, Kind.PROCESS),
    explains=_EXPLAINS,
    checks=(
        proves("status 200 and a wrong answer", _wrong_answer),
        proves("one room, two prompt lengths", _one_room_two_lengths),
        proves("an engine compared, and it differed", _checksum),
        proves("an engine counts wrong checksums", _counts_damaged),
        suggests("a known answer was not given", _does_not_know),
        suggests("an engine found damage", says(Event.CORRUPTION, otherwise="no line of damage")),
    ),
)


def _read_late(case: Case, view: InstanceView) -> Answer:
    found = view.events(Event.LATE_READ)
    if found:
        return yes(f"{view.name}: {found[-1].text[:110]}", Kind.LOG, found[-1].place, len(found))
    return grew(view, Counter.LATE_READS, "reads after the lease ended")


def _expired(case: Case, view: InstanceView) -> Answer:
    counted = grew(view, Counter.KV_EXPIRED, "expired leases")
    return counted if counted.is_true else logged(view, Event.LEASE_EXPIRED, what="an expired lease")


LATE = Analyzer(
    code="PD0313",
    roles=("prefill", "unified", "decode"),
    inputs=(Kind.LOG, Kind.METRICS, Kind.HTTP, Kind.PROCESS, Kind.PROBE),
    explains=(*_EXPLAINS, Symptom.STARTING),
    checks=(
        requires("it lives", alive),
        requires("its peers live", nobody_gone),
        proves("blocks were read after their lease", _read_late),
        suggests("leases ran out", _expired),
    ),
)


ANALYZERS = (PAGE, LATE)
