"""One group of related causes a file. `ANALYZERS` lists them all, in the order of their codes."""

from __future__ import annotations

from pdctl.diagnose.analyzer import Analyzer
from pdctl.diagnose.causes import (
    addresses,
    contract,
    corruption,
    crash_loop,
    crashes,
    memory,
    not_a_wedge,
    process_gone,
    routing,
    scheduling,
    silent_peer,
    stuck_handle,
    thread_death,
    transfer_path,
    zombie,
)

ANALYZERS: tuple[Analyzer, ...] = tuple(
    sorted(
        (
            process_gone.ANALYZER,
            crash_loop.ANALYZER,
            zombie.ANALYZER,
            silent_peer.ANALYZER,
            stuck_handle.ANALYZER,
            *contract.ANALYZERS,
            *addresses.ANALYZERS,
            *thread_death.ANALYZERS,
            *transfer_path.ANALYZERS,
            *corruption.ANALYZERS,
            *crashes.ANALYZERS,
            *memory.ANALYZERS,
            *scheduling.ANALYZERS,
            *routing.ANALYZERS,
            *not_a_wedge.ANALYZERS,
        ),
        key=lambda analyzer: analyzer.code,
    )
)
