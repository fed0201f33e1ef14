"""Profiles as they are written, and what they make."""

from __future__ import annotations

import random

import msgspec
import pytest

from pdctl.errors import UsageError
from pdctl.load.conversation import Conversation
from pdctl.load.profile import Profile, Range, check, parsed_duration
from pdctl.load.reply import Call, Outcome, Reply


@pytest.mark.parametrize(("text", "low", "high"), [("64", 64, 64), ("32-512", 32, 512), ("0.5-2", 0.5, 2), ("0", 0, 0)])
def test_ranges(text: str, low: float, high: float) -> None:
    """One number or two."""
    assert Range.parsed("--turns", text) == Range(low, high)


@pytest.mark.parametrize("text", ["", "x", "5-2", "-3", "1-", "nan", "1-inf"])
def test_a_wrong_range_names_flag_and_value(text: str) -> None:
    """Falling, negative, endless and not numbers."""
    with pytest.raises(UsageError, match=f"--turns {text}"):
        Range.parsed("--turns", text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("25s", 25), ("500ms", 0.5), ("5m", 300), ("1h", 3600), ("7", 7), ("1.5s", 1.5)]
)
def test_durations(text: str, seconds: float) -> None:
    """With a unit or without."""
    assert parsed_duration("--duration", text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-5s", "5 minutes", "1d"])
def test_a_wrong_duration_names_flag_and_value(text: str) -> None:
    """What is no number with a known unit."""
    with pytest.raises(UsageError, match="--duration"):
        parsed_duration("--duration", text)


@pytest.mark.parametrize("wrong", [{"sessions": 0}, {"abort_rate": 1.5}, {"turns": Range(0, 3)}, {"timeout_s": 0}])
def test_a_profile_without_load_is_refused(wrong: dict[str, object]) -> None:
    """Each value by itself."""
    with pytest.raises(UsageError):
        check(msgspec.structs.replace(Profile(), **wrong))


def test_lengths_spread_over_their_whole_range() -> None:
    """All within, and both ends are reached: half of them below the middle in proportion, which is 90."""
    chance = random.Random(1)
    drawn = [Range(16, 512).spread(chance) for _ in range(2000)]
    assert min(drawn) < 20
    assert max(drawn) > 450
    assert all(16 <= value <= 512 for value in drawn)
    assert 900 < sum(value < 90 for value in drawn) < 1100


def said(profile: Profile, number: int) -> list[dict[str, object]]:
    """Return the bodies of a session whose answers are all the same."""
    conversation = Conversation(profile, number)
    bodies = []
    for _ in range(conversation.turns):
        bodies.append(conversation.next_turn().body("m"))
        conversation.hear(Reply(outcome=Outcome.OK, took_s=1.0, text="yes"))
    return bodies


def test_the_same_seed_says_the_same() -> None:
    """Session by session; another seed and another session say something else."""
    profile = Profile(turns=Range(2, 4), seed=5)
    assert said(profile, 3) == said(profile, 3)
    assert said(profile, 3) != said(profile, 4)
    assert said(profile, 3) != said(msgspec.structs.replace(profile, seed=6), 3)


def test_a_session_carries_its_history() -> None:
    """Each turn has all that was said before, tool calls with their results."""
    conversation = Conversation(Profile(turns=Range(3, 3), tool_rate=1.0), 0)
    first = conversation.next_turn()
    conversation.hear(Reply(outcome=Outcome.OK, took_s=1.0, calls=(Call(id="c1", name="search", arguments="{}"),)))
    second = conversation.next_turn()
    assert second.messages[: len(first.messages)] == first.messages
    roles = [message["role"] for message in second.messages]
    assert roles == ["system", "user", "assistant", "tool", "user"]
    assert second.messages[3]["tool_call_id"] == "c1"
    assert second.tools
