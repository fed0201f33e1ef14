"""The case: all instances as views, their units and symptoms, and who is whose peer."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cached_property

from pdctl.diagnose.answer import Kind
from pdctl.diagnose.hidden import (
    bypassed,
    host_memory,
    idle_tokens,
    in_flight_on,
    is_idle,
    level_in_metrics,
    pool_leaks,
    prefill_unused,
    queue_floor,
    usage_climbs,
)
from pdctl.diagnose.instance_symptoms import instance_symptoms, probe_symptoms
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.loop_progress import place_of as loop_place
from pdctl.diagnose.loop_progress import stands_in_a_step_s
from pdctl.diagnose.pages import ownerless, unfenced
from pdctl.diagnose.ranks import handle_wait
from pdctl.diagnose.rooms import abandoned
from pdctl.diagnose.symptoms import (
    BEFORE_WORK,
    PROGRESS,
    Observed,
    Symptom,
    Unit,
    is_busy,
    progress,
    stall_of,
    units_of,
)
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Gauge
from pdctl.evidence.model import Evidence
from pdctl.evidence.records import Probe

_SERVER_ERROR = 500


class Case:
    """Everything an analyzer may ask for. Derived from Evidence alone."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.now: datetime | None = evidence.captured_at
        self.views = tuple(InstanceView(item, evidence) for item in evidence.instances)

    def of(self, *roles: str) -> tuple[InstanceView, ...]:
        """Return the views of these roles."""
        return tuple(view for view in self.views if view.role in roles)

    @property
    def prefills(self) -> tuple[InstanceView, ...]:
        return self.of("prefill")

    @property
    def decodes(self) -> tuple[InstanceView, ...]:
        return self.of("decode")

    @property
    def engines(self) -> tuple[InstanceView, ...]:
        return tuple(view for view in self.views if view.role != "router")

    @property
    def routers(self) -> tuple[InstanceView, ...]:
        return self.of("router")

    def view(self, name: str) -> InstanceView | None:
        """Return the view of an instance."""
        return next((view for view in self.views if view.name == name), None)

    def peers(self, view: InstanceView) -> tuple[InstanceView, ...]:
        """Return the engines of the other side that it exchanges KV with."""
        other = {"prefill": self.decodes, "decode": self.prefills}.get(view.role, ())
        if not self.evidence.pairs:
            return other
        column, back = (0, 1) if view.role == "prefill" else (1, 0)
        names = {pair[back] for pair in self.evidence.pairs if pair[column] == view.name}
        return tuple(item for item in other if item.name in names) or other

    @cached_property
    def probes(self) -> tuple[Probe, ...]:
        return self.evidence.probes

    @cached_property
    def last_probe(self) -> Probe | None:
        return self.probes[-1] if self.probes else None

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """All queues that hold something."""
        is_unanswered = any(probe.timed_out for probe in self.probes)
        return tuple(unit for view in self.views for unit in units_of(view, is_unanswered))

    def unit(self, view: InstanceView, gauge: Gauge) -> Unit | None:
        """Return one queue, when it holds something."""
        return next((item for item in self.units if item.view is view and item.gauge is gauge), None)

    @cached_property
    def symptoms(self) -> tuple[Observed, ...]:
        """Everything that is wrong, before anybody asks why."""
        stalls = [
            observed
            for unit in self.units
            if not self._is_served_by_peers(unit) and (observed := stall_of(unit)) is not None
        ]
        found = [*stalls, *(item for view in self.views for item in instance_symptoms(view))]
        found.extend(probe_symptoms(self.evidence))
        found.extend(self._queued(stalls))
        found.extend(item for view in self.views for item in self._hidden(view))
        found.extend(self._uneven())
        return tuple(found)

    def _is_served_by_peers(self, unit: Unit) -> bool:
        """Return whether requests leave the only prefill, or stream through a router: only decode counts that."""
        if unit.gauge is Gauge.FRONT_INFLIGHT:
            return bool(self.is_moving)
        is_sending = unit.gauge in (Gauge.BOOTSTRAP, Gauge.INFLIGHT)
        counts = any(unit.view.rise(counter) for counter in PROGRESS[unit.gauge])
        return is_sending and not counts and len(self.prefills) == 1 and bool(self.is_moving)

    def _uneven(self) -> list[Observed]:
        """One symptom a role whose instances share the work so badly that some get none."""
        found: list[Observed] = []
        if not self.routers:
            return found
        for role, dialect in sorted({(view.role, view.raw.dialect) for view in self.engines}):
            views = tuple(view for view in self.of(role) if view.raw.dialect == dialect)
            idle = [view for view in views if is_idle(view) and view.is_alive and not progress(view, Gauge.HTTP_ACTIVE)]
            queued = [
                unit
                for unit in self.units
                if unit.view in views and unit.gauge is Gauge.WAITING and unit.outstanding >= 2
            ]
            if idle and queued:
                text = f"{idle[0].name} is idle while {queued[0].outstanding:g} requests wait on {queued[0].view.name}"
                found.append(Observed(Symptom.UNEVEN, idle[0].name, "requests", text, len(idle)))
        return found

    def _hidden(self, view: InstanceView) -> list[Observed]:
        found: list[Observed] = []
        for gauge in (Gauge.TRANSFER, Gauge.INFLIGHT, Gauge.PREALLOC):
            floor = queue_floor(view, gauge)
            if floor is not None:
                kept = f"never fell below {floor[0]:g} in {floor[1]:.0f} min, while others passed"
                text = f"{gauge.value} of {view.name} {kept}"
                found.append(Observed(Symptom.STUCK_SUBSET, view.name, gauge.value, text, floor[0]))
        given_up = abandoned(view, self.peers(view))
        if given_up is not None:
            found.append(Observed(Symptom.STUCK_SUBSET, view.name, Gauge.INFLIGHT.value, given_up.text, given_up.age_s))
        stood_s = stands_in_a_step_s(view)
        if stood_s is not None and stood_s >= LIMITS.patience_s:
            text = f"the loop of {view.name} stands in one step for {stood_s:.0f} s"
            found.append(Observed(Symptom.STALLED, view.name, "loop", text, stood_s, loop_place(view)))
        standing = self._standing_executors(view)
        if standing:
            text = f"{standing} executors of {view.name} wait for a transfer in both dumps, without a step"
            found.append(Observed(Symptom.STALLED, view.name, "executor", text, standing))
        level = level_in_metrics(view)
        if level is not None and not found:
            text = f"transfer of {view.name} stays at {level:g} though little runs: some may not move"
            found.append(Observed(Symptom.SUSPECTED, view.name, Gauge.TRANSFER.value, text, level))
        used = idle_tokens(view)
        held = ownerless(view) or unfenced(view)
        if used is not None:
            text = f"{view.name}: {used.value:g} KV tokens in use without a request"
            found.append(Observed(Symptom.LEAK, view.name, "kv", text, used.value, used.place))
        elif held is not None:
            text = f"{view.name}: {held.pages:g} pages stay {held.owner} without a request"
            found.append(Observed(Symptom.LEAK, view.name, "kv", text, held.pages, held.place))
        elif pool_leaks(view) or usage_climbs(view) or host_memory(view):
            found.append(Observed(Symptom.LEAK, view.name, "memory", f"{view.name}: memory stays in use"))
        if view.role == "decode" and (bypassed(view) or prefill_unused(self.peers(view), (view,))):
            found.append(Observed(Symptom.BYPASSED, view.name, "kv", f"{view.name} computes prompts itself"))
        if view.is_router and self.orphans(view):
            found.append(
                Observed(Symptom.ORPHANED, view.name, "requests", f"{view.name} waits for requests nobody has")
            )
        return found

    def _standing_executors(self, view: InstanceView) -> int:
        """Return how many processes wait for a transfer in both dumps while nothing is printed."""
        silence = view.age_s(view.last_step.at if view.last_step else None)
        if silence is None or silence < LIMITS.silence_s:
            return 0
        waiting = [
            {process.pid for process in dump if process.main is not None and handle_wait(process.main)}
            for dump in (view.raw.stacks, view.raw.stacks_prev)
        ]
        return len(waiting[0] & waiting[1])

    def orphans(self, router: InstanceView) -> tuple[float, float] | None:
        """Return (in flight at the router, held by workers) when most of them are nowhere."""
        front = router.gauge(Gauge.FRONT_INFLIGHT)
        if front is None or progress(router, Gauge.FRONT_INFLIGHT):
            return None
        held = in_flight_on(self.engines)
        if held is None or front.value - held < LIMITS.orphan_floor:
            return None
        return (front.value, held) if held <= LIMITS.orphan_share * front.value else None

    def _queued(self, stalls: list[Observed]) -> list[Observed]:
        stalled = {(item.instance, item.unit) for item in stalls}
        return [
            Observed(
                Symptom.QUEUED,
                unit.view.name,
                unit.gauge.value,
                f"{unit.outstanding:g} wait in {unit.gauge.value} of {unit.view.name}, and are served",
                unit.outstanding,
                unit.place,
            )
            for unit in self.units
            if unit.gauge in BEFORE_WORK and unit.progress and (unit.view.name, unit.gauge.value) not in stalled
        ]

    def has(self, *kinds: Symptom) -> bool:
        """Return whether a symptom of these kinds was seen."""
        return any(item.symptom in kinds for item in self.symptoms)

    def symptom_of(self, view: InstanceView, *kinds: Symptom) -> Observed | None:
        """Return a symptom of one instance."""
        return next((item for item in self.symptoms if item.instance == view.name and item.symptom in kinds), None)

    @cached_property
    def is_moving(self) -> bool | None:
        """Whether requests complete: a counter of the last stage grew, decode prints steps, or a probe passed."""
        if self.last_probe is not None and self.last_probe.passed:
            return True
        last_stage = self.of("decode", "unified") or self.engines
        answers = [progress(view, Gauge.HTTP_ACTIVE) for view in last_stage]
        if any(answers):
            return True
        return False if answers and all(item is False for item in answers) else None

    @cached_property
    def doubtful_router(self) -> Observed | None:
        """What a router says is wrong with its workers, unless the last probe passed through it.

        Clients go that way: a request that passed beside it proves nothing of what they get.
        """
        probe = self.last_probe
        passed = probe.via if probe is not None and probe.passed else None
        for view in self.routers:
            found = self.symptom_of(view, Symptom.UNHEALTHY) if view.name != passed else None
            answer = view.get(found.unit) if found else None
            # One that has no such endpoint says nothing of itself.
            if answer is not None and (answer.status or 0) >= _SERVER_ERROR:
                return found
        return None

    @cached_property
    def kind_of_moving(self) -> Kind:
        """Which kind of source told whether requests complete."""
        counters = (Counter.REQUESTS_DONE, Counter.DECODE_TOKENS)
        if any(view.rise(counter) is not None for view in self.engines for counter in counters):
            return Kind.METRICS
        return Kind.PROBE if self.last_probe is not None and self.last_probe.passed else Kind.LOG

    @cached_property
    def is_idle_or_still(self) -> bool:
        """Whether every engine of the last stage is known to do nothing, and no other loads, compiles or steps."""
        last = self.decodes or self.engines
        return bool(last) and all(is_busy(view) is False for view in last) and not any(map(is_busy, self.engines))

    def stepped_during(self, probe: Probe) -> bool:
        """Return whether the last stage printed steps while a probe waited for its answer."""
        if probe.at is None or not probe.took_ms:
            return False
        wait = timedelta(milliseconds=probe.took_ms)
        return any(
            work.is_step and work.at is not None and probe.at - wait <= work.at <= probe.at + wait
            for view in self.of("decode", "unified")
            for work in view.works
        )

    def aborts(self) -> float:
        """Return the aborts that all counters know of."""
        return sum(total.value for view in self.engines if (total := view.total(Counter.ABORTS)) is not None)
