"""PD0303: decode's status thread is dead; it never learns that KV landed."""

from __future__ import annotations

from pdctl.diagnose.analyzer import Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.self_report import not_reported_alive, reported_dead
from pdctl.diagnose.causes.thread_signs import (
    EXPLAINS,
    STATUS,
    absent,
    has_such_threads,
    not_seen_alive,
    printed_death,
)
from pdctl.diagnose.predicates import (
    alive,
    gpus_do_not_spin,
    stalled,
)
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.pdctl_signals import CONTROL_THREAD
from pdctl.dialects.signals import Counter, Gauge


def _prefill_finishes(case: Case, view: InstanceView) -> Answer:
    """Prefill counts finished transfers while decode sees none of them."""
    own = view.rise(Counter.TRANSFERS_DONE) or view.rise(Counter.REQUESTS_DONE)
    for peer in case.peers(view):
        done = peer.rise(Counter.TRANSFERS_DONE) or peer.rise(Counter.REQUESTS_DONE)
        if done is None or own is None:
            continue
        text = f"{peer.name} finished {done.value:g} transfers, {view.name} saw {own.value:g}"
        if done.value > 0 and own.value == 0:
            return yes(text, Kind.METRICS, done.place, done.value)
        return no(text, Kind.METRICS, done.place, done.value)
    return unknown("transfers of the two sides are not known")


ANALYZER = Analyzer(
    code="PD0303",
    roles=("decode",),
    inputs=(
        Kind.STACKS,
        Kind.LOG,
        Kind.GPU,
        Kind.METRICS,
        Kind.HTTP,
        Kind.PROCESS,
        Kind.TOPOLOGY,
        Kind.PROBE,
    ),
    explains=EXPLAINS,
    checks=(
        requires("the family has such a thread", has_such_threads),
        requires("decode lives", alive),
        requires("no GPU spins without a step", gpus_do_not_spin),
        requires("no dump shows the thread everywhere", not_seen_alive(STATUS)),
        requires("it does not report the thread alive", not_reported_alive(CONTROL_THREAD)),
        proves("it reports the thread dead", reported_dead(CONTROL_THREAD)),
        proves("a traceback ended it", printed_death(STATUS, Gauge.TRANSFER)),
        proves("a scheduler lacks the thread", absent(STATUS)),
        suggests("prefill finishes transfers that decode never sees", _prefill_finishes),
        suggests("transfers stand still", lambda case, view: stalled(case, view, Gauge.TRANSFER)),
    ),
)
