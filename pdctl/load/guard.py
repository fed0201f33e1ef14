"""Whom a load may be aimed at: an investigator's own load has brought production down before. A pure rule."""

from __future__ import annotations

import msgspec

from pdctl.errors import Refused
from pdctl.load.profile import Profile

MOST_SESSIONS = 32
"""At once against a target that was not started for drills: a busy hour of one team, no load test."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What the load goes to."""

    name: str
    """Of the deployment, or host and port of a bare URL."""
    is_for_drills: bool


def check(target: Target, profile: Profile, *, typed_name: str | None, may_break: str | None) -> None:
    """Raise Refused where the flags do not show that the target is meant."""
    if target.is_for_drills:
        return
    if typed_name != target.name:
        typed = f"--target-name {typed_name} is another one" if typed_name else "its name was not typed"
        raise Refused(
            f"{target.name!r} was not started for drills, and {typed}; nothing was sent", f"--target-name {target.name}"
        )
    if profile.sessions > MOST_SESSIONS:
        raise Refused(
            f"{profile.sessions} sessions at once against {target.name!r}, which was not started for drills: "
            f"at most {MOST_SESSIONS}; nothing was sent",
            "pdctl up --for-drills makes a target that may be loaded as you like",
        )
    leaves = [
        flag
        for flag, is_set in (("--kill-after", profile.kill_after_s), ("--abort-rate", profile.abort_rate))
        if is_set
    ]
    if leaves and may_break != target.name:
        raise Refused(
            f"{' and '.join(leaves)} can wedge an engine (on SGLang 0.5.13 to 0.5.15 one abort does), and "
            f"{target.name!r} was not started for drills; nothing was sent",
            f"--may-break {target.name}, if that is meant",
        )
