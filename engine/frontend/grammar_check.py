"""Whether a grammar can be enforced, asked of a process that may hang without harm."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections import OrderedDict

from engine.errors import RequestError

COMMAND = (sys.executable, "-m", "engine.frontend.grammar_process")
WALL_S = 20.0
"""Its CPU time is limited; this is for a machine that does not get round to it."""
REMEMBERED = 256
NOT_IN_TIME = "it was not checked in time; simplify it, or try again"
"""Says nothing of the grammar, so it is not remembered."""


class GrammarCheck:
    """Remembers what was found: a client sends the same schema again and again. A new one costs about 0.1 s."""

    def __init__(self, command: tuple[str, ...] = COMMAND, wall_s: float = WALL_S) -> None:
        self._command = command
        self._wall_s = wall_s
        self._problems: OrderedDict[bytes, str] = OrderedDict()
        """Of the grammars that were asked for last, empty where there is none."""
        self._one_at_a_time = asyncio.Lock()

    async def check(self, grammar: str | None, name: str) -> None:
        """Raise RequestError (400) that names the field `name` unless the grammar can be enforced.

        Who asks for a grammar that is known waits for nobody's check.
        """
        if grammar is None:
            return
        key = hashlib.sha256(grammar.encode()).digest()
        problem = self._known(key)
        if problem is None:
            problem = await self._found(key, grammar)
        if problem:
            raise RequestError(400, "invalid_schema", f"{name}: this schema cannot be enforced: {problem}", name)

    def _known(self, key: bytes) -> str | None:
        """Return what was wrong with a grammar, empty for nothing; None: it is not remembered."""
        if key in self._problems:
            self._problems.move_to_end(key)
        return self._problems.get(key)

    async def _found(self, key: bytes, grammar: str) -> str:
        async with self._one_at_a_time:
            # Who held the lock may have asked for the same.
            if (known := self._known(key)) is not None:
                return known
            problem = await self._ask(grammar)
            if problem != NOT_IN_TIME:
                self._problems[key] = problem
                while len(self._problems) > REMEMBERED:
                    self._problems.popitem(last=False)
            return problem

    async def _ask(self, grammar: str) -> str:
        """Return what is wrong; empty when nothing is."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(self._wall_s):
                said, _ = await process.communicate(grammar.encode())
        except TimeoutError:
            return NOT_IN_TIME
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            return "it is too complex; simplify it"
        return said.decode(errors="replace")[:1000]
