"""PD0303: decode's status thread is dead; it never learns that KV landed."""

from __future__ import annotations

from pdctl.diagnose.analyzer import proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.thread_signs import STATUS, absent, dead_thread, not_seen_alive
from pdctl.diagnose.predicates import stalled
from pdctl.diagnose.view import InstanceView
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


ANALYZER = dead_thread(
    "PD0303",
    STATUS,
    ("decode",),
    requires("no dump shows the thread everywhere", not_seen_alive(STATUS)),
    proves("a scheduler lacks the thread", absent(STATUS)),
    suggests("prefill finishes transfers that decode never sees", _prefill_finishes),
    suggests("transfers stand still", lambda case, view: stalled(case, view, Gauge.TRANSFER)),
)
