"""What clients do before, during and after each fault: one kind of load, and where the others differ from it."""

from __future__ import annotations

from msgspec.structs import replace

from pdctl.load.profile import Profile, Range

PLAIN = Profile(
    sessions=3, turns=Range(1, 1), prompt_tokens=Range(24, 96), output_tokens=Range(8, 32), tool_rate=0, canary_rate=0
)
"""A few clients with one short question each."""

LIGHT = replace(PLAIN, turns=Range(1, 2), prompt_tokens=Range(24, 160), canary_rate=0.1, seed=11)
STEADY = replace(PLAIN, output_tokens=Range(8, 16), canary_rate=0.5, seed=12)
"""Half of the requests have an answer that is known."""
CROWD = replace(PLAIN, sessions=120, prompt_tokens=Range(300, 600), output_tokens=Range(32, 64), seed=13)
"""More than two cores compute in time, fast ones too."""
IMPATIENT = replace(
    PLAIN,
    sessions=8,
    prompt_tokens=Range(48, 96),
    output_tokens=Range(200, 300),
    abort_rate=0.9,
    abort_within_s=1.5,
    seed=14,
)
TALKATIVE = replace(PLAIN, sessions=12, prompt_tokens=Range(24, 48), output_tokens=Range(4, 1200), seed=15)
LONG = replace(PLAIN, sessions=6, prompt_tokens=Range(300, 600), output_tokens=Range(64, 128), seed=7)
"""Prompts that prefill computes for a while: whoever leaves then leaves a room that is not over."""
WAITING = replace(PLAIN, seed=8)
"""Clients that do not know yet."""
