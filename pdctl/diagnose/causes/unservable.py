"""PD0405: a request that can never fit blocks the queue."""

from __future__ import annotations

import re

from pdctl.diagnose.analyzer import ENGINES, STALLS, Analyzer, proves, requires, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.events import number_of
from pdctl.diagnose.predicates import (
    kv_usage,
    level,
    logged,
    stalled,
    unless_frozen,
)
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event, Gauge


def _empty_and_waiting(case: Case, view: InstanceView) -> Answer:
    waiting, running, usage = level(view, Gauge.WAITING), level(view, Gauge.RUNNING), kv_usage(view)
    moving = level(view, Gauge.TRANSFER) or level(view, Gauge.FETCH_DONE)
    if waiting is None or running is None or usage is None:
        return unknown(f"the queues of {view.name} are not known")
    text = f"{waiting:g} wait on {view.name}, {running:g} run, KV is {usage[0]:.1%} used"
    if waiting > 0 and running == 0 and usage[0] < 0.05 and not moving and view.role not in ("decode", "prefill"):
        return yes(text, usage[1], value=waiting)
    return unless_frozen(no(text, usage[1], value=waiting), view, Gauge.WAITING, Gauge.RUNNING, Gauge.KV_USAGE)


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
    return number_of(found[-1].group("tokens")) if found else None


_MAX_TOKENS = re.compile(r"max_tokens=(\d+)")


_PROMPT_TOKENS = re.compile(r"prompt_tokens[=: ]+(\d+)|input_len[=: ]+(\d+)|#prompt[_-]tokens?[=: ]+(\d+)")


_MODEL_LENGTH = re.compile(r"Using max model len (\d+)|context_len=(\d+)")


def _needed_tokens(view: InstanceView) -> float | None:
    """Return the KV tokens of the prompt that was accepted last."""
    for line in reversed(view.raw.log or ()):
        if match := _PROMPT_TOKENS.search(line.message):
            return float(next(value for value in match.groups() if value))
        if "Received request" in line.message and _MAX_TOKENS.search(line.message):
            return _by_default_limit(view)
    return None


def _by_default_limit(view: InstanceView) -> float | None:
    """Return what a prompt takes of the model's length.

    vLLM sets an absent max_tokens to what the prompt leaves. Clients that set it themselves use few and small values:
    only limits that differ from request to request, of half the length and more, are such rests.
    """
    length = _model_length(view)
    limits = [
        float(match[1])
        for line in view.raw.log or ()
        if "Received request" in line.message and (match := _MAX_TOKENS.search(line.message))
    ]
    is_rest = length is not None and len(set(limits[-5:])) >= min(3, len(limits)) and min(limits[-5:]) >= length / 2
    return length - limits[-1] if is_rest and length is not None else None


def _model_length(view: InstanceView) -> float | None:
    for line in view.raw.log or ():
        if match := _MODEL_LENGTH.search(line.message):
            return float(next(value for value in match.groups() if value))
    return None


def _rejected(case: Case, view: InstanceView) -> Answer:
    return logged(view, Event.TOO_LONG, what="a request that is too long")


ANALYZER = Analyzer(
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
