"""Prove by real requests that service is back: every affected pair by itself, then the way through the router.

A pair passes with five requests, two of them at once, one of several prefill chunks; afterwards the failure
counters of both sides must stand still.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from pdctl.collect import liveness
from pdctl.collect.http import Timeouts, client_for
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.dialects.answers import json_value
from pdctl.errors import CannotTell, PdctlError, Refused, UsageError
from pdctl.hosts.hosts import Hosts
from pdctl.probe import ProbeReport, Verdict, prove
from pdctl.recover import failure_counters
from pdctl.recover.ledger import Outcome
from pdctl.recover.restart_set import affected_pairs

SHORT_TOKENS = 48
"""Three pages of KV: enough to travel, and little to compute while users wait."""
FIRST_LANE, SECOND_LANE = 3, 1
"""Short requests of each lane; the second lane's long one makes five."""
ROUTER_PROBES = 2
LONG_MOST_TOKENS = 16_384
CHUNK_TOKENS_GUESS = 256
SETTLE_S = 2.0
"""An engine of ours tells its peer of a failure within this time; a late one must not slip through."""
ROUTER_WAIT_S = 5.0
"""A router notices a returned engine within about a second of its /health."""
ROUTER_ASK_S = 1.0
POLL_S = 0.1
LOCK_WAIT_S = 3.0
_ASK = Timeouts(connect_s=2.0, read_s=2.0, total_s=3.0)


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What the requests of one way said."""

    via: str
    passed: int
    sent: int
    why: str
    """Of the first that failed, else of the last."""
    took_s: float

    @property
    def ok(self) -> bool:
        return self.sent > 0 and self.passed == self.sent


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The whole."""

    pairs: tuple[Proof, ...]
    router: Proof | None
    failures: tuple[str, ...]
    """Counters that grew."""

    @property
    def outcome(self) -> Outcome:
        """Return recovered, or which half is missing."""
        if not all(proof.ok for proof in self.pairs) or self.failures or not (self.pairs or self.router):
            return Outcome.NOT_VERIFIED
        if self.router is not None and not self.router.ok:
            return Outcome.ROUTER if self.pairs else Outcome.NOT_VERIFIED
        return Outcome.RECOVERED

    def problem(self) -> str | None:
        """Return what did not pass, None if all did."""
        bad = [f"{proof.via}: {proof.why}" for proof in (*self.pairs, self.router) if proof and not proof.ok]
        return "; ".join((*bad, *self.failures)) or None


def verify(
    deployment: Deployment,
    restarted: Iterable[str],
    locks: Path,
    *,
    timeout_s: float,
    say: Callable[[str], None],
    pause: Callable[[float], None] = time.sleep,
    hosts: Hosts | None = None,
) -> Verification:
    """Send the requests and watch the counters. Takes a few seconds plus `SETTLE_S`; at worst `timeout_s` a request.

    `locks` is a folder for the second lane's pair locks: two at once are allowed here, and only here. Through `hosts`
    counters and health are read of what listens on the loopback of another one; requests go out from here.
    """
    pairs = affected_pairs(deployment, restarted)
    engines = {engine.name: engine for pair in pairs for engine in pair}
    before = failure_counters.read(engines.values(), hosts)
    proofs = []
    for prefill, decode in pairs:
        proofs.append(_pair(deployment, (prefill, decode), locks, timeout_s))
        say(f"{proofs[-1].via}: {proofs[-1].passed} of {proofs[-1].sent} direct requests passed")
    direct_done_at = time.monotonic()
    router = _through_router(deployment, timeout_s, pause, hosts) if all(proof.ok for proof in proofs) else None
    if router is not None:
        say(f"{router.via}: {router.passed} of {router.sent} requests passed")
    # The router's requests pass the settling time of the direct ones; their own end they tell themselves.
    pause(max(0.0, SETTLE_S - (time.monotonic() - direct_done_at)))
    risen = failure_counters.risen(before, failure_counters.read(engines.values(), hosts))
    return Verification(pairs=tuple(proofs), router=router, failures=risen)


def _pair(deployment: Deployment, pair: tuple[Instance, Instance], locks: Path, timeout_s: float) -> Proof:
    alone = msgspec.structs.replace(deployment, instances=pair)
    via = f"{pair[0].name} -> {pair[1].name}"
    long_tokens = min(2 * _chunk_tokens(pair[0]) + 16, LONG_MOST_TOKENS)
    began = time.monotonic()
    ask = partial(prove, alone, direct=True, prompt_tokens=SHORT_TOKENS, timeout_s=timeout_s)

    def first() -> list[ProbeReport]:
        return [_prove(partial(ask, count=FIRST_LANE))]

    def second() -> list[ProbeReport]:
        beside = partial(ask, lock_folder=locks)
        return [_prove(partial(beside, prompt_tokens=long_tokens)), _prove(partial(beside, count=SECOND_LANE))]

    try:
        with ThreadPoolExecutor(max_workers=2) as pool:
            lanes = [pool.submit(lane) for lane in (first, second)]
            reports = [report for lane in lanes for report in lane.result()]
    except (UsageError, CannotTell) as error:
        if deployment.router is None:
            return _unproven(via, error, began)
        # A family that takes no request without its router: the way through the router has to do.
        count = FIRST_LANE + SECOND_LANE + 1
        return _by_router(deployment, f"{via}, through the router ({error.message})", count, timeout_s, began)
    except PdctlError as error:
        return _unproven(via, error, began)
    return _proof(via, reports, began)


def _through_router(
    deployment: Deployment, timeout_s: float, pause: Callable[[float], None], hosts: Hosts | None
) -> Proof | None:
    router = deployment.router or next(iter(deployment.of_role(Role.UNIFIED)), None)
    if router is None:
        return None
    began = time.monotonic()
    while time.monotonic() - began < ROUTER_WAIT_S:
        if liveness.ask_all([router], ROUTER_ASK_S, with_loads=False, hosts=hosts)[router.name].is_well:
            break
        pause(POLL_S)
    return _by_router(deployment, "router", ROUTER_PROBES, timeout_s, began)


def _by_router(deployment: Deployment, via: str, count: int, timeout_s: float, began: float) -> Proof:
    """Send requests until one fails: what is decided then needs no second one, which might hang as long."""
    send = partial(prove, deployment, prompt_tokens=SHORT_TOKENS, timeout_s=timeout_s)
    reports: list[ProbeReport] = []
    try:
        while len(reports) < count and all(report.verdict is Verdict.PROVEN for report in reports):
            reports.append(_prove(send))
    except PdctlError as error:
        return _unproven(via, error, began)
    return _proof(via, reports, began)


def _prove(send: Callable[[], ProbeReport]) -> ProbeReport:
    """Send requests as soon as the pair's lock is free: the process of the one before may just be ending."""
    ends_at = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            return send()
        except Refused:
            if time.monotonic() >= ends_at:
                raise
            time.sleep(POLL_S)


def _unproven(via: str, error: PdctlError, began: float) -> Proof:
    return Proof(via=via, passed=0, sent=0, why=error.message, took_s=round(time.monotonic() - began, 3))


def _proof(via: str, reports: list[ProbeReport], began: float) -> Proof:
    results = [result for report in reports for result in report.results]
    passed = [result for result in results if result.verdict is Verdict.PROVEN]
    failed = next((result for result in results if result.verdict is not Verdict.PROVEN), None)
    last = failed or (results[-1] if results else None)
    return Proof(
        via=via,
        passed=len(passed),
        sent=len(results),
        why=last.why if last else "no request was sent",
        took_s=round(time.monotonic() - began, 3),
    )


def _chunk_tokens(prefill: Instance) -> int:
    """Return how many prompt tokens prefill computes in one step, as it says itself."""
    try:
        with client_for(prefill, _ASK) as client:
            body = client.get("/server_info").body
    except PdctlError:
        return CHUNK_TOKENS_GUESS
    for name in ("chunk_tokens", "chunked_prefill_size"):
        value = json_value(body, (name,))
        if isinstance(value, int) and value > 0:
            return value
    return CHUNK_TOKENS_GUESS
