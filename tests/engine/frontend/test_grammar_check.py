"""Schemas are checked where a hang does no harm."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.errors import RequestError
from engine.frontend.bodies import JsonSchema, ResponseFormat
from engine.frontend.grammar_check import COMMAND, WALL_S, GrammarCheck
from engine.frontend.grammars import grammar_of_format, grammar_of_schema

pytest.importorskip("llguidance")

BOMB = {"allOf": [{"type": "string", "pattern": f"a{{1,{count}}}b"} for count in range(1, 60)]}
"""Keeps llguidance 1.9.1 busy for ever."""


def checked(check: GrammarCheck, schema: dict[str, Any]) -> None:
    """Check a schema."""
    asyncio.run(check.check(grammar_of_schema(schema, "response_format"), "response_format"))


def test_a_good_schema_passes() -> None:
    """So do no schema, and any object."""
    checked(GrammarCheck(), {"type": "object", "properties": {"a": {"type": "integer"}}})
    wanted = grammar_of_format(ResponseFormat(type="json_object"))
    asyncio.run(GrammarCheck().check(wanted, "response_format"))
    asyncio.run(GrammarCheck().check(grammar_of_format(None), "response_format"))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "foo"}, "foo"),
        ({"$ref": "#/none"}, "none"),
        ({"$ref": "http://example.com/schema"}, "not fetch"),
        ({"type": "string", "pattern": "("}, "unclosed"),
    ],
)
def test_a_bad_schema_is_refused_with_the_reason(schema: dict[str, Any], why: str) -> None:
    """400, naming the field."""
    with pytest.raises(RequestError, match=why) as refused:
        checked(GrammarCheck(), schema)
    assert (refused.value.status, refused.value.param) == (400, "response_format")


def test_a_schema_that_hangs_the_library_is_refused() -> None:
    """The kernel ends the process after a second of computing."""
    with pytest.raises(RequestError, match="too complex"):
        checked(GrammarCheck(), BOMB)


def test_a_check_that_gets_no_time_is_refused() -> None:
    """The wall clock ends what the CPU clock does not see; the process is gone."""
    waiting = (sys.executable, "-c", "import signal; signal.pause()")
    with pytest.raises(RequestError, match="not checked in time"):
        checked(GrammarCheck(waiting, wall_s=0.5), {"type": "object"})


def test_what_passed_is_not_asked_again() -> None:
    """The second time no process is started: a command that does not exist would fail."""
    check = GrammarCheck()
    grammar = grammar_of_schema({"type": "object"}, "response_format")

    async def twice() -> None:
        await check.check(grammar, "response_format")
        check._command = ("/does/not/exist",)
        await check.check(grammar, "response_format")

    asyncio.run(twice())


def test_what_was_refused_is_not_asked_again() -> None:
    """The same bomb costs its second once."""
    check = GrammarCheck()
    grammar = grammar_of_schema({"type": "foo"}, "response_format")

    async def twice() -> None:
        for command in (check._command, ("/does/not/exist",)):
            check._command = command
            with pytest.raises(RequestError, match="foo"):
                await check.check(grammar, "response_format")

    asyncio.run(twice())


def test_what_was_not_checked_in_time_is_asked_again() -> None:
    """That was the machine's fault."""
    check = GrammarCheck((sys.executable, "-c", "import signal; signal.pause()"), wall_s=0.2)
    with pytest.raises(RequestError, match="not checked in time"):
        checked(check, {"type": "object"})
    check._command, check._wall_s = COMMAND, WALL_S
    checked(check, {"type": "object"})


def test_a_known_schema_does_not_wait_for_another_ones_check() -> None:
    """A check that takes its time holds up new schemas only."""

    async def scenario() -> None:
        check = GrammarCheck()
        known = grammar_of_schema({"type": "object"}, "response_format")
        await check.check(known, "response_format")
        async with check._one_at_a_time, asyncio.timeout(5):
            await check.check(known, "response_format")

    asyncio.run(scenario())


def test_a_schema_that_several_send_at_once_is_asked_of_once(tmp_path: Path) -> None:
    """Those who waited for the lock find the answer."""
    asked = tmp_path / "asked"
    script = f"import sys; open({str(asked)!r}, 'a').write('x'); sys.stdin.read()"

    async def scenario() -> None:
        check = GrammarCheck((sys.executable, "-c", script))
        await asyncio.gather(*(check.check("grammar", "tools") for _ in range(3)))

    asyncio.run(scenario())
    assert asked.read_text() == "x"


def test_a_format_without_its_schema_is_refused() -> None:
    """json_schema needs json_schema.schema."""
    with pytest.raises(RequestError, match="schema"):
        grammar_of_format(ResponseFormat(type="json_schema", json_schema=JsonSchema(name="x")))
