"""What the causes on the transfer path ask of both sides."""

from __future__ import annotations

from pdctl.diagnose.analyzer import FAILURES, STALLS
from pdctl.diagnose.answer import Answer
from pdctl.diagnose.case import Case
from pdctl.diagnose.events import Occurrence
from pdctl.diagnose.predicates import (
    alive,
    peers_alive,
)
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event

TRANSPORT = (Event.TRANSPORT_ERROR, Event.TRANSPORT_TIMEOUT)


EXPLAINS = (*STALLS, *FAILURES, Symptom.STUCK_SUBSET)


def either_dead(case: Case, view: InstanceView) -> Answer:
    """Ask that neither side is gone or stopped."""
    own = alive(case, view)
    return own if not own.is_true else peers_alive(case, view)


def transport(view: InstanceView) -> tuple[Occurrence, ...]:
    return view.events(*TRANSPORT)
