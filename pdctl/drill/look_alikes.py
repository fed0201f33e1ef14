"""What looks like a wedge and is none: how it is brought about, and how one sees that it is there."""

from __future__ import annotations

import contextlib

from pdctl.drill.control_group import ControlGroup, name_of
from pdctl.drill.stage import START_S, Stage
from pdctl.errors import PdctlError

SLOW_CORES = 0.15
"""What the ranks of an engine that loads get: on a fast machine a small model would be there before anybody looks."""
LONG_WAIT_S = 8.0
"""Who has waited so long has a first token that comes late for anybody's taste."""


def cold_start(stage: Stage) -> None:
    """Decode was started just now, and loads slowly, as large weights do; no client is there yet.

    Where no control group can be made it loads at its own pace.
    """
    stage.stop_load()
    stage.restart(stage.decode, waits=False)
    stage.until(lambda: is_loading(stage), START_S, "decode loads")
    with contextlib.suppress(PdctlError):
        slow = ControlGroup.of_cpu(name_of(stage.deployment.name), SLOW_CORES)
        stage.finally_do(slow.remove)
        _, *ranks = stage.processes(stage.decode)
        slow.take(process.pid for process in ranks)


def is_loading(stage: Stage) -> bool:
    """Return whether decode says that it loads."""
    return bool(stage.get(stage.decode, "/health").get("status") == "loading")


def is_queueing(stage: Stage) -> bool:
    """Return whether many requests wait, one of them for long, while others end."""
    waiting = stage.get(stage.prefill, "/v1/loads").get("waiting", 0)
    return waiting >= 8 and stage.oldest_s(stage.prefill, "waiting") >= LONG_WAIT_S and stage.answered() > 0


def clients_leave(stage: Stage) -> bool:
    """Return whether a good many clients have left by themselves."""
    return stage.load is not None and stage.load.figures().outcomes.get("left", 0) >= 10


def is_cut_short(stage: Stage) -> bool:
    """Return whether several requests ended by the engine's own deadline."""
    return stage.load is not None and stage.load.figures().failed >= 5


def as_it_is(stage: Stage) -> None:
    """The load or the settings are the fault; nothing else is done."""
