"""A load never reaches a target that was not meant."""

from __future__ import annotations

import pytest

from pdctl.errors import Refused
from pdctl.load.guard import MOST_SESSIONS, Target, check
from pdctl.load.profile import Profile

PRODUCTION = Target(name="prod", is_for_drills=False)
PLAIN = Profile(sessions=4)
LEAVING = Profile(sessions=4, abort_rate=0.1)
KILLED = Profile(sessions=4, kill_after_s=25.0)


@pytest.mark.parametrize("profile", [PLAIN, LEAVING, KILLED, Profile(sessions=5000)])
def test_a_target_for_drills_takes_anything(profile: Profile) -> None:
    """Nothing needs to be typed."""
    check(Target(name="drill", is_for_drills=True), profile, typed_name=None, may_break=None)


@pytest.mark.parametrize(
    ("profile", "typed", "may_break"), [(PLAIN, "prod", None), (LEAVING, "prod", "prod"), (KILLED, "prod", "prod")]
)
def test_another_target_takes_what_was_typed_for_it(profile: Profile, typed: str, may_break: str | None) -> None:
    """Its name, and its name again where clients leave on purpose."""
    check(PRODUCTION, profile, typed_name=typed, may_break=may_break)


@pytest.mark.parametrize(
    ("profile", "typed", "may_break", "why"),
    [
        (PLAIN, None, None, "its name was not typed"),
        (PLAIN, "staging", None, "staging is another one"),
        (PLAIN, None, "prod", "its name was not typed"),
        (LEAVING, "prod", None, "--abort-rate can wedge"),
        (KILLED, "prod", None, "--kill-after can wedge"),
        (KILLED, "prod", "staging", "--kill-after can wedge"),
        (Profile(sessions=MOST_SESSIONS + 1), "prod", "prod", "at most 32"),
    ],
)
def test_another_target_is_refused_without(
    profile: Profile, typed: str | None, may_break: str | None, why: str
) -> None:
    """And the message says that nothing was sent."""
    with pytest.raises(Refused, match=why) as refused:
        check(PRODUCTION, profile, typed_name=typed, may_break=may_break)
    assert "nothing was sent" in refused.value.message
