"""How each fault of one engine or of the path between two is caused, and how one sees that it is really there."""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec

from pdctl.drill.control_group import ControlGroup, name_of
from pdctl.drill.loads import LONG, WAITING
from pdctl.drill.stage import Stage
from pdctl.errors import NotProven, Refused

DEAD_S = 60.0
HANG_S = 60.0
WRONG_S = 90.0
LOST = "drill-lost-failure"
HELD_TOKENS = 400
HELD_S = 12.0
"""No room in good health waits so long between its last chunk and its end."""
TOO_LITTLE_BYTES = 160 << 20
"""Less than an engine needs to import its libraries."""
STARVED_S = 2.0
"""Much longer than pages are waited for where there are enough."""
SERVED_BEFORE = 5
PROVOCATIONS = 60
"""A race is provoked again until it happens."""


def thread_is_dead(stage: Stage, role: str, thread: str) -> bool:
    """Return whether an engine's metrics say that a thread is down: its /health may be made to lie."""
    instance = stage.prefill if role == "prefill" else stage.decode
    return stage.metric(instance, "pdengine_thread_alive", thread=thread) == 0


def hangs(stage: Stage) -> bool:
    """Return whether a fresh request gets no answer."""
    return not stage.passes()


def mass_abort(stage: Stage) -> None:
    """An agent with many requests in flight is killed: its aborts end prefill's control thread."""
    stage.switch(stage.prefill, "mass-abort")
    _killed_until_dead(stage, "prefill", "transfer-control")


def abort_race(stage: Stage) -> None:
    """Clients leave while their prompts are computed, until a chunk meets a room that is gone."""
    stage.switch(stage.prefill, "abort-race")
    _killed_until_dead(stage, "prefill", "transfer-nixl", state="reading")


def status_thread(stage: Stage) -> None:
    """Several requests at once: their frames interleave."""
    stage.switch(stage.decode, "status-thread")
    stage.start_load(LONG)
    stage.until(lambda: thread_is_dead(stage, "decode", "transfer-control"), DEAD_S, "decode's control thread dead")
    stage.start_load(WAITING)


def _killed_until_dead(stage: Stage, role: str, thread: str, state: str = "") -> None:
    """Kill agents, each when prefill has a room in that state, until the thread is dead. Raises NotProven."""
    for attempt in range(PROVOCATIONS):
        if thread_is_dead(stage, role, thread):
            stage.start_load(WAITING)
            return
        load = stage.start_load(msgspec.structs.replace(LONG, seed=LONG.seed + attempt))
        stage.until(lambda: _is_at_work(stage, state) or thread_is_dead(stage, role, thread), DEAD_S, "prefill at work")
        stage.say(f"killing the agent: {load.drop_all()} connections dropped at once")
        load.stop()
    raise NotProven(f"{role}'s thread {thread} survived {PROVOCATIONS} killed agents")


def _is_at_work(stage: Stage, state: str) -> bool:
    """Return whether prefill has rooms that are not over, in that state if one is named: who leaves says ABORT."""
    rooms = stage.get(stage.prefill, "/rooms").get("rooms", [])
    return any(not state or room.get("state") == state for room in rooms)


def stuck_handle(stage: Stage) -> None:
    """A READ never completes; its client leaves in the midst of it."""
    stage.stop_load()
    stage.must_serve()
    stage.switch(stage.decode, "stuck-handle")
    stage.hold(stage.decode, "/generate", body := stage.legs(_prompt(64)), 2.0)
    stage.hold(stage.prefill, "/generate", body, 2.0).join()
    stage.start_load(WAITING)


def silent_peer(stage: Stage) -> None:
    """Decode is stopped by a signal: alive for the kernel, dead for everybody else."""
    stage.signal(stage.decode, signal.SIGSTOP)


def decode_restart(stage: Stage) -> None:
    """Decode is restarted alone; prefill goes on talking to the one that was."""
    stage.until(lambda: stage.answered() >= SERVED_BEFORE, DEAD_S, "requests served before the restart")
    stage.switch(stage.prefill, "decode-restart")
    stage.must_serve()
    stage.restart(stage.decode)


def lost_failure(stage: Stage) -> None:
    """Decode's leg of a long request ends, and prefill is not told: its leg waits on and holds its pages."""
    stage.stop_load()
    stage.switch(stage.decode, "lost-failure")
    stage.switch(stage.decode, "starved")
    body = stage.legs(_prompt(HELD_TOKENS)) | {"rid": LOST}
    stage.hold(stage.prefill, "/generate", body, 3600.0)
    stage.hold(stage.decode, "/generate", body, 3600.0)
    stage.until(lambda: stage.oldest_s(stage.prefill, "held") > 0, DEAD_S, "prefill holds the pages")
    stage.abort(stage.decode, LOST)
    stage.switch(stage.decode, "starved", on=False)
    stage.until(lambda: not stage.get(stage.decode, "/rooms").get("rooms"), DEAD_S, "decode through with it")


def is_failure_lost(stage: Stage) -> bool:
    """Return whether prefill has held pages for a while for a room that decode does not know any more."""
    return stage.oldest_s(stage.prefill, "held") >= HELD_S and not stage.get(stage.decode, "/rooms").get("rooms")


def corrupt_page(stage: Stage) -> None:
    """Pages land with wrong bytes, and nobody compares them; whose answer was wrong complains, and asks no more."""
    stage.switch(stage.decode, "corrupt-page")
    stage.until(lambda: is_answer_wrong(stage), WRONG_S, "a canary answered wrongly")
    stage.stop_load()


def is_answer_wrong(stage: Stage) -> bool:
    """Return whether a canary among the load came back with wrong content."""
    return stage.load is not None and stage.load.figures().canaries.get("wrong", 0) > 0


def leak(stage: Stage) -> None:
    """An agent is killed, and the pages of its requests stay taken."""
    stage.switch(stage.decode, "leak")
    killed_while_decoding(stage)


def killed_while_decoding(stage: Stage) -> None:
    """Drop all connections of an agent at once when decode generates for it."""
    load = stage.start_load(LONG)
    stage.until(lambda: stage.get(stage.decode, "/ledger").get("running", 0) > 0, DEAD_S, "decode at work")
    load.drop_all()
    load.stop()


def is_leaked(stage: Stage) -> bool:
    """Return whether pages are taken though no request is left."""
    ledger = stage.get(stage.decode, "/ledger")
    taken = ledger.get("total", 0) - ledger.get("free", 0) - ledger.get("cached", 0)
    return taken > 0 and not stage.get(stage.decode, "/rooms").get("rooms")


def starved(stage: Stage) -> None:
    """The next room is taken for one that can never fit, and all others wait behind it.

    It must be one of the load: ours would be over, and all be well, when our own patience ends.
    """
    stage.switch(stage.decode, "starved")
    stage.until(lambda: stage.oldest_s(stage.decode, "pages") >= STARVED_S, DEAD_S, "a room of the load starves")


def blocking_io(stage: Stage) -> None:
    """Decode's loop waits in every turn for an HTTP server that never answers."""
    stage.switch(stage.decode, "blocking-io")


def crash_loop(stage: Stage) -> None:
    """The weights are gone when decode is killed: its manager starts it again and again, and it dies each time."""
    link = _weights(stage)
    if link.parent != stage.folder.folder:
        raise Refused(
            f"crash-loop takes the weights away, and {link} is not the drill's own link to them; nothing was done",
            "leave out --name and --file, and the drill starts a deployment of its own",
        )
    away = link.with_name(f"{link.name}.gone")
    link.replace(away)
    stage.mend_by(lambda: away.replace(link))
    stage.signal(stage.decode, signal.SIGKILL)


def is_crashing(stage: Stage) -> bool:
    """Return whether decode was started again twice, in vain."""
    return stage.restarts(stage.decode) >= 2


def _weights(stage: Stage) -> Path:
    """Return the link in the drill's own folder that its engines load from."""
    start = stage.decode.start or ()
    return Path(start[start.index("--model") + 1])


def oom(stage: Stage) -> None:
    """Decode and its shim may use less memory than the model needs: the kernel kills it, again and again."""
    limit = ControlGroup.of_memory(name_of(stage.deployment.name), TOO_LITTLE_BYTES)
    stage.finally_do(limit.remove)
    stage.mend_by(limit.remove)
    shim_pid = stage.shim_pid(stage.decode)
    limit.take([shim_pid, *(process.pid for process in stage.processes(stage.decode))])
    stage.signal(stage.decode, signal.SIGKILL)


def mismatch(stage: Stage) -> None:
    """Decode comes back from a careless rollout with another page size."""
    stage.restart(stage.decode, ("--page-size", "32"))
    stage.mend_by(lambda: stage.restart(stage.decode))


def is_refused(stage: Stage) -> bool:
    """Return whether one side refuses the other."""
    sides = (stage.prefill, stage.decode)
    return any(stage.metric(item, "pdengine_requests_total", result="contract_mismatch") for item in sides)


def _prompt(tokens: int) -> dict[str, object]:
    ids = [10 + number % 200 for number in range(tokens)]
    return {"input_ids": ids, "sampling_params": {"max_new_tokens": 16, "temperature": 0, "ignore_eos": True}}
