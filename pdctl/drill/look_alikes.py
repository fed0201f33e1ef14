"""What looks like a wedge and is none: how it is brought about, and how one sees that it is there."""

from __future__ import annotations

from pdctl.drill.stage import Stage


def cold_start(stage: Stage) -> None:
    """Decode was started just now, and loads; no client is there yet."""
    stage.stop_load()
    stage.restart(stage.decode, waits=False)


def is_loading(stage: Stage) -> bool:
    """Return whether decode says that it loads."""
    return bool(stage.get(stage.decode, "/health").get("status") == "loading")


def is_queueing(stage: Stage) -> bool:
    """Return whether many requests wait while others end."""
    waiting = stage.get(stage.prefill, "/v1/loads").get("waiting", 0)
    return waiting >= 8 and stage.answered() > 0


def clients_leave(stage: Stage) -> bool:
    """Return whether a good many clients have left by themselves."""
    return stage.load is not None and stage.load.figures().outcomes.get("left", 0) >= 10


def is_cut_short(stage: Stage) -> bool:
    """Return whether several requests ended by the engine's own deadline."""
    return stage.load is not None and stage.load.figures().failed >= 5


def as_it_is(stage: Stage) -> None:
    """The load or the settings are the fault; nothing else is done."""
