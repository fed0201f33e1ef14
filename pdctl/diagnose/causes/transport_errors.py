"""PD0310: transfers fail on the network while both sides live."""

from __future__ import annotations

from pdctl.diagnose.analyzer import ENGINES, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.bursts import age_skew
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.transfer_sides import EXPLAINS, either_dead, transport
from pdctl.diagnose.events import Occurrence
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import grew
from pdctl.diagnose.symptoms import progress
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Event, Gauge

_CONFIGURED = (Event.MISMATCH, Event.WRONG_PEER, Event.REGISTRY_UNREACHABLE, Event.CORRUPTION)


def _no_other_reason(case: Case, view: InstanceView) -> Answer:
    for side in (view, *case.peers(view)):
        found = side.events(*_CONFIGURED, Event.THREAD_DIED, Event.FATAL_SIGNAL)
        if found:
            return no(f"{side.name} names another reason: {found[-1].text[:80]}", Kind.LOG, found[-1].place)
    return yes("no configuration error, thread death or crash is named", Kind.LOG)


def _errors_among_the_living(case: Case, view: InstanceView) -> Answer:
    """Transport errors of this incarnation, both sides alive and of one age, other transfers pass."""
    errors = [item for item in transport(view) if (view.age_s(item.at) or 0.0) <= LIMITS.recent_errors_s]
    if len(errors) < 2:
        return unknown(f"{view.name} prints no recent series of transport errors")
    if _is_rare(view, len(errors)):
        return unknown(f"{view.name}: {len(errors)} transport errors among very many transfers that pass")
    skew = age_skew(case, view)
    if skew.is_true:
        return unknown(skew.text)
    living = either_dead(case, view)
    if not living.is_true:
        return unknown(living.text)
    passed = any(progress(side, Gauge.TRANSFER) or progress(side, Gauge.INFLIGHT) for side in (view, *case.peers(view)))
    if not passed and not _works_after(view, errors[0]):
        return unknown("no other transfer is known to pass")
    return yes(
        f"{view.name}: {len(errors)} transport errors between living peers ({errors[0].text[:80]})",
        Kind.LOG,
        errors[0].place,
        len(errors),
    )


def _is_rare(view: InstanceView, errors: int) -> bool:
    """Return whether so many requests pass that a few errors do not matter."""
    failed, done = view.rise(Counter.TRANSFERS_FAILED), view.rise(Counter.REQUESTS_DONE)
    if failed is not None and done is not None and failed.value + done.value > 0:
        return failed.value / (failed.value + done.value) < LIMITS.rare_share
    good = sum(
        1 for item in view.events(Event.ACCESS) if item.group("status") == "200" and item.group("method") == "POST"
    )
    return good > 0 and errors / (errors + good) < LIMITS.rare_share


def _works_after(view: InstanceView, first: Occurrence) -> bool:
    return any(item.is_step and item.at and first.at and item.at > first.at for item in view.works)


def _says_transport(case: Case, view: InstanceView) -> Answer:
    sides = (view, *case.peers(view))
    errors = [
        item for side in sides for item in transport(side) if (side.age_s(item.at) or 0.0) <= LIMITS.recent_errors_s
    ]
    if errors:
        return yes(f"transport error: {errors[-1].text[:110]}", Kind.LOG, errors[-1].place, len(errors))
    return unknown("no transport error is printed")


def _counts_failures(case: Case, view: InstanceView) -> Answer:
    grown = grew(view, Counter.TRANSFERS_FAILED, "failed transfers")
    if grown.is_true and _is_rare(view, 0):
        return no(f"{grown.text}, among very many that pass", Kind.METRICS, grown.place, grown.value)
    return grown


ANALYZER = Analyzer(
    code="PD0310",
    roles=ENGINES,
    inputs=(Kind.LOG, Kind.METRICS, Kind.PROCESS, Kind.HTTP),
    explains=EXPLAINS,
    checks=(
        requires("both sides live", either_dead),
        requires("nothing else is named", _no_other_reason),
        proves("transport errors between living peers of one age", _errors_among_the_living),
        suggests("transport errors are printed", _says_transport),
        suggests("failed transfers grow", _counts_failures),
    ),
)
