"""Prove by real requests that a deployment serves."""

from __future__ import annotations

import contextlib
from pathlib import Path

from pdctl.collect.http import Timeouts, client_for
from pdctl.deployment.model import Deployment
from pdctl.deployment.state import state_root
from pdctl.dialects.family import Ask
from pdctl.errors import UsageError
from pdctl.probe.chat import probe_chat
from pdctl.probe.generate import probe_generate
from pdctl.probe.kv_memory import check_room
from pdctl.probe.pair_lock import pair_locks
from pdctl.probe.prompt import fresh_id
from pdctl.probe.report import ProbeReport, ProbeResult
from pdctl.probe.run import Progress, Run
from pdctl.probe.targets import Target, plan

DEFAULT_PROMPT_TOKENS = 128
DEFAULT_TIMEOUT_S = 60.0

_OBSERVE = Timeouts(connect_s=2.0, read_s=3.0, total_s=6.0)
"""For room records, tokenizing and KV use; the request itself and the scoring have the probe's timeout."""


def prove(
    deployment: Deployment,
    *,
    direct: bool = False,
    count: int = 1,
    prompt_tokens: int = DEFAULT_PROMPT_TOKENS,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    force: bool = False,
    progress: Progress = lambda line: None,
    lock_folder: Path | None = None,
) -> ProbeReport:
    """Send `count` requests through the router, or with `direct` to each prefill x decode pair.

    One at a time, and never a second one to a pair while a connection of the first is kept open. The locks
    of the pairs lie in `lock_folder`, by default in pdctl's state folder. Raises UsageError (no such way),
    CannotTell (engines that pdctl cannot ask that way) and Refused (a probe is under way, or KV memory is
    full); everything that happens to a request itself is in the report.
    """
    _check(count, prompt_tokens, timeout_s)
    folder = lock_folder or state_root() / "probes"
    targets = plan(deployment, direct=direct)
    engines = {engine.name: engine for target in targets for engine in target.engines}
    with contextlib.ExitStack() as stack:
        clients = {name: stack.enter_context(client_for(item, _OBSERVE)) for name, item in engines.items()}
        run = Run(prompt_tokens=prompt_tokens, timeout_s=timeout_s, progress=progress, clients=clients)
        results: list[ProbeResult] = []
        notes: list[str] = []
        for target in targets:
            with pair_locks(folder, target.locks, fresh_id()) as locks:
                notes += check_room(run.clients_of(target.engines), force=force)
                results += _series(target, locks, run, count, deployment.model)
    return ProbeReport(deployment=deployment.name, results=tuple(results), notes=tuple(dict.fromkeys(notes)))


def _series(target: Target, locks: tuple[int, ...], run: Run, count: int, model: str) -> list[ProbeResult]:
    results = []
    for _ in range(count):
        if target.ask is Ask.GENERATE:
            result = probe_generate(target, locks, run)
        else:
            result = probe_chat(target, locks, run, model)
        results.append(result)
        if result.held_by:
            run.progress(f"{target.via}: no further probe while this one is open")
            break
    return results


def _check(count: int, prompt_tokens: int, timeout_s: float) -> None:
    for flag, value, least, most in (
        ("--count", count, 1, 1000),
        ("--prompt-tokens", prompt_tokens, 16, 1_000_000),
        ("--timeout", timeout_s, 0.1, 3600),
    ):
        if not least <= value <= most:
            raise UsageError(f"{flag} {value} is out of range", f"choose a value from {least} to {most}")
