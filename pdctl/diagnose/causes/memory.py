"""PD0401-PD0405: KV memory is full, starved, leaked, or too small for one request."""

from __future__ import annotations

import re

from pdctl.diagnose.analyzer import ENGINES, FAILURES, STALLS, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.stuck_handle import waiting_thread
from pdctl.diagnose.hidden import host_memory, idle_tokens, usage_climbs
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import (
    abort_burst,
    alive,
    burst,
    kv_usage,
    level,
    logged,
    many_aborts,
    quantised,
    room_failures,
    stalled,
)
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event, Gauge
from pdctl.evidence.records import Place

_WAITING = (Gauge.WAITING, Gauge.PREALLOC, Gauge.HTTP_ACTIVE)


# PD0401


def _full(case: Case, view: InstanceView) -> Answer:
    usage = kv_usage(view)
    if usage is None:
        return unknown(f"KV use of {view.name} is not known")
    text = f"KV of {view.name} is {usage[0]:.0%} used"
    return (yes if usage[0] >= LIMITS.kv_full else no)(text, usage[1], value=usage[0])


def _full_and_still(case: Case, view: InstanceView) -> Answer:
    full = _full(case, view)
    if not full.is_true:
        return unknown(full.text)
    running = level(view, Gauge.RUNNING)
    waits = stalled(case, view, *_WAITING)
    done = level(view, Gauge.FETCH_DONE)
    if waits.is_true and running == 0 and not done:
        return yes(
            f"{full.text}, nothing runs, {waits.text}", full.kind or Kind.METRICS, waits.place, full.value
        )
    return unknown("something runs, or loaded requests wait for the scheduler")


EXHAUSTED = Analyzer(
    code="PD0401",
    roles=ENGINES,
    inputs=(Kind.METRICS, Kind.LOG, Kind.HTTP, Kind.PROCESS, Kind.PROBE),
    explains=(*STALLS, *FAILURES, Symptom.QUEUED),
    checks=(
        requires("KV memory is full", _full),
        requires("requests stand still", lambda case, view: stalled(case, view, *_WAITING, Gauge.RUNNING)),
        proves("full, nothing runs, requests wait", _full_and_still),
        suggests("KV memory is full", _full),
        suggests(
            "requests are retracted",
            lambda case, view: logged(view, Event.RETRACTED, what="retraction for want of KV"),
        ),
    ),
)


# PD0402


def _room_for_more(case: Case, view: InstanceView) -> Answer:
    waiting = level(view, Gauge.PREALLOC)
    usage = kv_usage(view)
    if waiting is None or usage is None:
        return unknown("queue and KV use are not known")
    text = f"{waiting:g} wait for pages on {view.name} while KV is {usage[0]:.0%} used"
    return (yes if waiting > 0 and usage[0] < LIMITS.kv_full else no)(text, usage[1], value=waiting)


def _both_clocks(case: Case, view: InstanceView) -> Answer:
    """Prefill gives rooms up by its bootstrap clock, decode the same rooms by its own: they waited for admission."""
    for peer in case.peers(view):
        early = quantised(room_failures(peer, "Bootstrapping"))
        shared = {item.group("room") for item in room_failures(peer, "Bootstrapping")} & {
            item.group("room") for item in room_failures(view, "timed out")
        }
        late = quantised(room_failures(view, "WaitingForInput"))
        if early and (shared or late):
            text = f"{early[1]} rooms ended on {peer.name} after {early[0]:.0f} s of bootstrap"
            if late:
                text += f", on {view.name} after {late[0]:.0f} s"
            return yes(text, Kind.LOG, room_failures(peer, "Bootstrapping")[-1].place, early[1])
    return unknown("no rooms end by both clocks")


def _small_admission(case: Case, view: InstanceView) -> Answer:
    source = view.raw.source
    for flag in ("--max-num-seqs", "--max-running-requests"):
        value = source.flag(flag) if source else None
        running = level(view, Gauge.RUNNING)
        if value and value.isdigit() and int(value) <= 16:
            return yes(
                f"{view.name} admits {value} at a time ({running or 0:g} run)",
                Kind.SOURCE,
                Place(f"{view.name}/source.toml"),
                int(value),
            )
    return unknown("no small admission limit is known")


STARVED = Analyzer(
    code="PD0402",
    roles=("decode",),
    inputs=(Kind.METRICS, Kind.LOG, Kind.SOURCE, Kind.HTTP, Kind.PROCESS, Kind.PROBE),
    explains=(*STALLS, *FAILURES, Symptom.STUCK_SUBSET),
    checks=(
        requires("decode lives", alive),
        proves("rooms end by both sides' clocks", _both_clocks),
        suggests("requests wait for pages that are there", _room_for_more),
        suggests("the queue for pages stands still", lambda case, view: stalled(case, view, Gauge.PREALLOC)),
        suggests("admission is small", _small_admission),
    ),
)


# PD0403, PD0404


def _engine_says(case: Case, view: InstanceView) -> Answer:
    found = view.events(Event.POOL_LEAK)
    if found:
        return yes(f"{view.name}: {found[-1].text[:120]}", Kind.LOG, found[-1].place, len(found))
    return unknown("the engine reports no leak")


def _idle_use(case: Case, view: InstanceView) -> Answer:
    used = idle_tokens(view)
    if used is None:
        return unknown("no KV in use without requests is known")
    return yes(
        f"{view.name} holds {used.value:g} KV tokens without a request",
        Kind.METRICS,
        used.place,
        used.value,
        "tokens",
    )


def _climbs(case: Case, view: InstanceView) -> Answer:
    climb = usage_climbs(view)
    if climb is None:
        return unknown("KV use does not climb against the load")
    return yes(
        f"KV of {view.name} rose from {climb[0]:.0%} to {climb[1]:.0%} "
        f"while running fell from {climb[2]:.0f} to {climb[3]:.0f}",
        Kind.LOG,
        value=climb[1],
    )


def _climbs_after_aborts(case: Case, view: InstanceView) -> Answer:
    climb, aborts = _climbs(case, view), many_aborts(case, view)
    if climb.is_true and aborts.is_true:
        return yes(f"{climb.text}; {aborts.text}", Kind.LOG, aborts.place, climb.value)
    return unknown(climb.text if not climb.is_true else aborts.text)


def _executor_waits(case: Case, view: InstanceView) -> Answer:
    """All executor loops sit in the check for ended transfers after failed ones: their blocks never come back."""
    waits = waiting_thread(view)
    failed = burst(view.events(Event.TRANSFER_FAILED)) or view.events(Event.TRANSFER_FAILED)
    if waits.is_true and len(failed) >= LIMITS.burst_events:
        return yes(
            f"{waits.text}, after {len(failed)} failed transfers", Kind.STACKS, waits.place, waits.value
        )
    return unknown("no executor waits for failed transfers")


def _held(case: Case, view: InstanceView) -> Answer:
    found = view.events(Event.HELD_BLOCKS)
    last = max((item.at for item in view.works if item.at), default=None)
    if len(found) >= 10 and len({item.text for item in found[-10:]}) <= 3:
        return yes(
            f"{view.name} repeats {len(found)}x: {found[-1].text[:90]}", Kind.LOG, found[-1].place, len(found)
        )
    return unknown("no line repeats about held transfers" if last else "no work lines")


def _held_after_aborts(case: Case, view: InstanceView) -> Answer:
    """The engine waits again and again for transfers of requests whose clients left."""
    held, aborts = _held(case, view), many_aborts(case, view)
    if held.is_true and aborts.is_true:
        return yes(f"{held.text}; {aborts.text}", Kind.LOG, held.place, held.value)
    return unknown(held.text if not held.is_true else aborts.text)


def _stays_in_use(case: Case, view: InstanceView) -> Answer:
    """Ask for any sign of memory that nobody holds: aborts alone are no leak."""
    signs = [ask(case, view) for ask in (_engine_says, _idle_use, _climbs, _executor_waits, _held)]
    return next((answer for answer in signs if answer.is_true), unknown("no memory is known to stay in use"))


KV_LEAK = Analyzer(
    code="PD0403",
    roles=ENGINES,
    inputs=(Kind.METRICS, Kind.LOG, Kind.STACKS, Kind.HTTP, Kind.PROCESS, Kind.PROBE),
    explains=(*STALLS, Symptom.LEAK, Symptom.STUCK_SUBSET, Symptom.QUEUED),
    checks=(
        requires("it lives", alive),
        requires("memory stays in use", _stays_in_use),
        proves("the engine misses pages", _engine_says),
        proves("KV in use without requests", _idle_use),
        proves("KV use climbs against the load, after aborts", _climbs_after_aborts),
        proves("executors wait for failed transfers", _executor_waits),
        proves("it waits for transfers of aborted requests", _held_after_aborts),
        suggests("held transfers are reported again and again", _held),
        suggests("KV use climbs against the load", _climbs),
        suggests("requests were aborted", many_aborts),
        suggests("aborts came in a burst", abort_burst),
    ),
)


def _host(case: Case, view: InstanceView) -> Answer:
    found = host_memory(view)
    if found is None:
        return unknown(f"host memory of {view.name} is not known to be too much")
    return yes(
        f"an idle rank of {view.name} holds {found[0] / 1024:.0f} GB of host memory",
        Kind.PROCESS,
        Place(f"{view.name}/process.toml"),
        found[0],
        "MB",
    )


HOST_LEAK = Analyzer(
    code="PD0404",
    roles=ENGINES,
    inputs=(Kind.PROCESS, Kind.METRICS, Kind.LOG, Kind.HTTP),
    explains=(Symptom.LEAK,),
    checks=(
        requires("it lives", alive),
        proves("an idle rank holds too much memory", _host),
        suggests("requests were aborted", many_aborts),
    ),
)


# PD0405


def _empty_and_waiting(case: Case, view: InstanceView) -> Answer:
    waiting, running, usage = level(view, Gauge.WAITING), level(view, Gauge.RUNNING), kv_usage(view)
    moving = level(view, Gauge.TRANSFER) or level(view, Gauge.FETCH_DONE)
    if waiting is None or running is None or usage is None:
        return unknown(f"the queues of {view.name} are not known")
    text = f"{waiting:g} wait on {view.name}, {running:g} run, KV is {usage[0]:.1%} used"
    if (
        waiting > 0
        and running == 0
        and usage[0] < 0.05
        and not moving
        and view.role not in ("decode", "prefill")
    ):
        return yes(text, usage[1], value=waiting)
    return no(text, usage[1], value=waiting)


def _too_big(case: Case, view: InstanceView) -> Answer:
    """The last accepted request needs more KV than the pool has."""
    pool = _pool_tokens(view)
    needed = _needed_tokens(view)
    if pool is None or needed is None:
        return unknown("size of the pool or of the request is not known")
    text = f"the last request needs {needed:g} tokens, the pool of {view.name} has {pool:g}"
    return (yes if needed > pool else no)(text, Kind.LOG, value=needed, unit="tokens")


def _pool_tokens(view: InstanceView) -> float | None:
    reading = view.gauge(Gauge.KV_TOTAL_TOKENS)
    if reading is not None:
        return reading.value
    found = view.events(Event.KV_POOL_SIZE)
    return float(found[-1].group("tokens").replace(",", "")) if found else None


_MAX_TOKENS = re.compile(r"max_tokens=(\d+)")
_PROMPT_TOKENS = re.compile(r"prompt_tokens[=: ]+(\d+)|input_len[=: ]+(\d+)|#prompt[_-]tokens?[=: ]+(\d+)")
_MODEL_LENGTH = re.compile(r"Using max model len (\d+)|context_len=(\d+)")


def _needed_tokens(view: InstanceView) -> float | None:
    """Return the KV tokens of the last request that was accepted.

    vLLM sets an absent max_tokens to what the prompt leaves of the model's length: then prompt + max_tokens is it.
    """
    prompt: float | None = None
    for line in reversed(view.raw.log or ()):
        if match := _PROMPT_TOKENS.search(line.message):
            prompt = float(next(value for value in match.groups() if value))
            break
        if "Received request" in line.message and (match := _MAX_TOKENS.search(line.message)):
            length = _model_length(view)
            return length - float(match[1]) if length is not None and length > float(match[1]) else None
    return prompt


def _model_length(view: InstanceView) -> float | None:
    for line in view.raw.log or ():
        if match := _MODEL_LENGTH.search(line.message):
            return float(next(value for value in match.groups() if value))
    return None


def _rejected(case: Case, view: InstanceView) -> Answer:
    return logged(view, Event.TOO_LONG, what="a request that is too long")


UNSERVABLE = Analyzer(
    code="PD0405",
    roles=ENGINES,
    inputs=(Kind.METRICS, Kind.LOG, Kind.HTTP, Kind.PROCESS, Kind.PROBE),
    explains=STALLS,
    checks=(
        requires("requests wait though the pool is empty", _empty_and_waiting),
        requires("the queue stands still", lambda case, view: stalled(case, view, Gauge.WAITING)),
        proves("the request is bigger than the pool", _too_big),
        suggests("requests wait though the pool is empty", _empty_and_waiting),
        suggests("requests are too long", _rejected),
    ),
)
ANALYZERS = (EXHAUSTED, STARVED, KV_LEAK, HOST_LEAK, UNSERVABLE)
