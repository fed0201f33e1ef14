"""What kind of load: how many sessions, how long, how impatient. The seed makes the same requests again."""

from __future__ import annotations

import math
import random
import re

import msgspec

from pdctl.errors import UsageError

SESSIONS = 8
UNITS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Range(msgspec.Struct, frozen=True):
    """From `low` to `high`, both included; `32-512` on the command line, `64` for a single value."""

    low: float
    high: float

    @classmethod
    def parsed(cls, flag: str, text: str) -> Range:
        """Read a range. Raises UsageError naming flag and value."""
        low, dash, high = text.partition("-")
        try:
            found = cls(float(low), float(high if dash else low))
        except ValueError:
            raise UsageError(f"{flag} {text}: is no number and no range", "write 64, or 32-512") from None
        if not 0 <= found.low <= found.high < math.inf:
            raise UsageError(f"{flag} {text}: must rise from 0 or more", "write the smaller number first")
        return found

    def spread(self, chance: random.Random) -> int:
        """Return a whole number; small ones are as likely as large ones in proportion, as lengths of prompts are."""
        low, high = math.log(max(self.low, 1.0)), math.log(max(self.high, 1.0))
        return round(math.exp(chance.uniform(low, high)))

    def even(self, chance: random.Random) -> float:
        """Return a number, each as likely as the other."""
        return chance.uniform(self.low, self.high)


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of load. Lengths are tokens, about; durations seconds; rates shares from 0 to 1."""

    sessions: int = SESSIONS
    """At once; a session that ends is followed by the next."""
    turns: Range = Range(1, 4)
    prompt_tokens: Range = Range(32, 256)
    """Of each turn: what went before comes on top."""
    output_tokens: Range = Range(16, 96)
    think_s: Range = Range(0, 0)
    """Between an answer and the next turn."""
    ramp_s: float = 0.0
    """The first sessions begin one after the other within this time."""
    tool_rate: float = 0.25
    """Sessions that offer tools."""
    canary_rate: float = 0.1
    """Requests whose answer is known, and compared."""
    abort_rate: float = 0.0
    """Requests whose client leaves before the end."""
    abort_within_s: float = 2.0
    kill_after_s: float | None = None
    """Drop every connection at once after this time, as an agent that is killed does; then go on."""
    timeout_s: float = 120.0
    """Of one request: the client gives up and closes."""
    seed: int = 0


def parsed_duration(flag: str, text: str) -> float:
    """Return the seconds of `25`, `25s`, `500ms`, `5m` or `1h`. Raises UsageError naming flag and value."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", text.strip())
    if found is None:
        raise UsageError(f"{flag} {text}: is no duration", "write 25s, 500ms, 5m or 1h")
    return float(found[1]) * UNITS_S[found[2]]


def check(profile: Profile) -> None:
    """Raise UsageError for a value that makes no load."""
    for flag, value, least, most in (
        ("--sessions", profile.sessions, 1, 10_000),
        ("--tool-rate", profile.tool_rate, 0, 1),
        ("--canary-rate", profile.canary_rate, 0, 1),
        ("--abort-rate", profile.abort_rate, 0, 1),
        ("--ramp", profile.ramp_s, 0, 86_400),
        ("--request-timeout", profile.timeout_s, 0.1, 86_400),
    ):
        if not least <= value <= most:
            raise UsageError(f"{flag} {value:g}: must be from {least} to {most}")
    if profile.turns.low < 1 or profile.prompt_tokens.low < 1 or profile.output_tokens.low < 1:
        raise UsageError("--turns, --prompt-tokens and --output-tokens must be 1 or more")
