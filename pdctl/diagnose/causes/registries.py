"""What routers list, and who of it can serve."""

from __future__ import annotations

from pdctl.diagnose.analyzer import FAILURES, STALLS
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView

EXPLAINS = (
    *STALLS,
    *FAILURES,
    Symptom.REFUSED,
    Symptom.UNHEALTHY,
    Symptom.BYPASSED,
    Symptom.ORPHANED,
    Symptom.CLIENTS_LEFT,
    Symptom.UNEVEN,
)


def serving(view: InstanceView) -> bool | None:
    if view.is_alive is None:
        return None
    return view.is_alive and not view.is_stopped and not view.is_starting and view.health in (None, 200, 503)
