"""Instances that somebody else restarts: pdctl says how, waits for the new ones, and they are proven as ours are.

A new one is told by its incarnation or the start time of its process; where an engine tells neither, by being gone and
well again.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Sequence

from pdctl.collect import liveness
from pdctl.collect.fetch import Fetcher
from pdctl.collect.metrics import metrics_place
from pdctl.deployment.model import Instance
from pdctl.dialects.answers import json_value, samples
from pdctl.hosts.hosts import Hosts
from pdctl.recover import plan
from pdctl.recover.ledger import Ledger, Notes, Outcome, Step

POLL_S = 1.0
ASK_S = 2.0
_START_TIME = "process_start_time_seconds"


class Elsewhere:
    """Carries out a plan by telling a person (or their tool) what to do."""

    def __init__(
        self,
        ledger: Ledger,
        recovery: str,
        say: Callable[[str], None],
        *,
        hosts: Hosts | None = None,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._notes = Notes(ledger, recovery)
        self._say = say
        self._hosts = hosts
        self._pause = pause
        self._clock = clock
        self._instances: tuple[Instance, ...] = ()
        self._before: dict[str, str | None] = {}
        self._timeout_s = 0.0
        self._told_at = 0.0

    def hand_over(self, whole: plan.Plan) -> None:
        """Remember who runs now, and print the commands."""
        self._instances = tuple(target.instance for target in whole.targets)
        self._timeout_s = whole.ready_timeout_s
        self._told_at = time.time()
        self._before = {item.name: identity(item, self._hosts) for item in self._instances}
        self._notes.note(Step.HANDED_OVER, detail="to whoever runs these instances")
        self._say("pdctl does not run these; restart them together, in this order, and leave this command running:")
        for item in self._instances:
            self._say(f"  {command_of(item)}")

    def until_executed(self) -> tuple[Outcome, str]:
        """Wait until every instance is a new one and well, at most the plan's ready timeout."""
        ends_at = self._clock() + self._timeout_s
        gone: set[str] = set()
        waiting: dict[str, str] = {}
        while True:
            answers = liveness.ask_all(self._instances, ASK_S, with_loads=False, hosts=self._hosts)
            gone |= {name for name, answer in answers.items() if answer.problem == "refused"}
            waiting = {}
            for item in self._instances:
                if problem := self._problem(item, answers[item.name], gone):
                    waiting[item.name] = problem
            if not waiting:
                return self._executed(Outcome.STARTED, "")
            if self._clock() >= ends_at:
                words = "; ".join(f"{name}: {problem}" for name, problem in waiting.items())
                return self._executed(
                    Outcome.NOT_READY, f"not restarted and well within {self._timeout_s:g} s: {words}"
                )
            self._pause(POLL_S)

    def _problem(self, item: Instance, answer: liveness.Answer, gone: set[str]) -> str | None:
        if not answer.is_well:
            return answer.problem
        before, now = self._before[item.name], identity(item, self._hosts)
        # One that hung too much to say who it was may answer again without any restart.
        is_new = now != before if before and now else item.name in gone or self._has_started_since(item)
        return None if is_new else "still the old process"

    def _has_started_since(self, item: Instance) -> bool:
        started_at = asyncio.run(_start_time(item, Fetcher(self._hosts)))
        return started_at is not None and started_at > self._told_at

    def _executed(self, outcome: Outcome, detail: str) -> tuple[Outcome, str]:
        self._notes.note(Step.EXECUTED, detail=detail, outcome=outcome)
        return outcome, detail


def identity(instance: Instance, hosts: Hosts | None = None) -> str | None:
    """Return what only this process of the instance says of itself, None where it does not answer or tell."""
    return asyncio.run(_identity(instance, Fetcher(hosts)))


def command_of(instance: Instance) -> str:
    """Return how to restart it, as far as the deployment file tells."""
    where = "" if instance.host == "local" else f"   # on {instance.host}"
    if instance.unit:
        return f"systemctl restart {shlex.quote(instance.unit)}{where}"
    if instance.start:
        return f"stop {instance.name}, then: {shlex.join(instance.start)}{where}"
    return f"restart {instance.name} ({instance.url}) the way it was started{where}"


async def _identity(instance: Instance, fetcher: Fetcher) -> str | None:
    info = await fetcher.get(instance, "/server_info", deadline_s=ASK_S)
    told = json_value(info.body, ("incarnation",)) if info.ok else None
    if told:
        return str(told)
    started_at = await _start_time(instance, fetcher)
    return None if started_at is None else f"{started_at:.3f}"


async def _start_time(instance: Instance, fetcher: Fetcher) -> float | None:
    base_url, path = metrics_place(instance)
    answer = await fetcher.get(instance, path, base_url=base_url, deadline_s=ASK_S)
    values: Sequence[float] = [item.value for item in samples(answer.body, _START_TIME)] if answer.ok else []
    return values[0] if values else None
