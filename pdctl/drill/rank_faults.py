"""What goes wrong between the ranks of one engine, and how one sees that it is really there."""

from __future__ import annotations

import psutil

from pdctl.drill.faults import hangs, killed_while_decoding
from pdctl.drill.loads import WAITING
from pdctl.drill.stage import Stage

FLIGHT_RECORDS = 200
"""Steps among the room transitions of the few clients of a drill."""


def desync(stage: Stage) -> None:
    """An agent is killed: after its aborts rank 0 of decode begins a step that it tells no other rank."""
    stage.switch(stage.decode, "desync")
    killed_while_decoding(stage)
    stage.start_load(WAITING)


def have_parted(stage: Stage) -> bool:
    """Return whether decode's ranks stay at different steps from before a request that hangs until after it."""
    before = _newest_steps(stage)
    return len(set(before)) > 1 and hangs(stage) and _newest_steps(stage) == before


def _newest_steps(stage: Stage) -> list[tuple[object, object]]:
    """Return begin or end, and number, of the newest step of each rank of decode."""
    newest = []
    for rank in range(stage.decode.tp or 1):
        records = stage.get(stage.decode, f"/flight?last={FLIGHT_RECORDS}&rank={rank}").get("records", [])
        steps = [(item["kind"], item["subject"]) for item in records if item["kind"] in ("step_begin", "step_end")]
        newest += steps[-1:]
    return newest


def zombie(stage: Stage) -> None:
    """The last rank of decode is killed, and the instance goes on answering without it."""
    stage.switch(stage.decode, "zombie")


def lacks_a_rank(stage: Stage) -> bool:
    """Return whether a process that decode names as one of its ranks is gone."""
    pids = stage.get(stage.decode, "/server_info").get("rank_pids", [])
    return not all(map(psutil.pid_exists, pids))
