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


class GrammarCheck:
    """Remembers what passed: a client sends the same schema again and again. A new one costs about 0.1 s."""

    def __init__(self, command: tuple[str, ...] = COMMAND, wall_s: float = WALL_S) -> None:
        self._command = command
        self._wall_s = wall_s
        self._passed: OrderedDict[bytes, None] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()

    async def check(self, grammar: str | None, name: str) -> None:
        """Raise RequestError (400) that names the field `name` unless the grammar can be enforced."""
        if grammar is None:
            return
        key = hashlib.sha256(grammar.encode()).digest()
        async with self._one_at_a_time:
            if key not in self._passed:
                problem = await self._ask(grammar)
                if problem:
                    message = f"{name}: this schema cannot be enforced: {problem}"
                    raise RequestError(400, "invalid_schema", message, name)
                self._passed[key] = None
            self._passed.move_to_end(key)
            while len(self._passed) > REMEMBERED:
                self._passed.popitem(last=False)

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
            return "it was not checked in time; simplify it, or try again"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            return "it is too complex; simplify it"
        return said.decode(errors="replace")[:1000]
