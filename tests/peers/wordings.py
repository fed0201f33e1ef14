"""The constant parts of what an expression matches: what must stand in the source of whoever prints such a line."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

Wording = tuple[tuple[str, ...], ...]
"""Runs of constant parts: those of one run stand in one constant, in this order; `.*` leads into another."""

_HOLE = "\0"
_GAP = "\1"
"""What `.*` leaves open: also where one constant ends and the next begins."""
_FEWEST_LETTERS = 3
_EDGE = " \t'\"`()[]{}<>:;,.=-/\\|#!?*"
"""Left off at both ends of a part: punctuation may come from what is put in (the quotes of a repr)."""
_BUILTIN = re.compile(r"^(?:Assertion|Value|Runtime|NotImplemented|Key|Type)?(?:Error|Exception)\b")
"""Python itself puts the name of its exceptions before their text."""
_MOST = 4000


def wordings(regex: str) -> list[Wording]:
    """Return, for each way through the alternatives of a regex, its constant parts of three letters or more."""
    ways = _sequence(_parser.parse(regex, re.S))
    assert len(ways) <= _MOST, f"{len(ways)} ways through {regex}"
    return sorted({tuple(run for text in way.split(_GAP) if (run := _parts(text))) for way in ways} - {()})


def parts_of(regex: str) -> list[str]:
    """Return every constant part of every wording, each once."""
    return sorted({part for wording in wordings(regex) for run in wording for part in run})


def _parts(text: str) -> tuple[str, ...]:
    found = (_BUILTIN.sub("", part.strip(_EDGE)).strip(_EDGE) for part in text.split(_HOLE))
    return tuple(part for part in found if sum(letter.isalpha() for letter in part) >= _FEWEST_LETTERS)


def _sequence(items: Iterable[Any]) -> list[str]:
    ways = [""]
    for item in items:
        nexts = _ways(*item)
        ways = list(dict.fromkeys(a + b for a, b in itertools.product(ways, nexts)))
    return ways


def _ways(code: Any, argument: Any) -> list[str]:
    """Return the texts of one item, with a hole wherever it is not constant."""
    if code is op.LITERAL:
        return [chr(argument)]
    if code is op.IN:
        letters = [chr(value) for kind, value in argument if kind is op.LITERAL]
        return letters if len(letters) == len(argument) <= 2 else [_HOLE]
    if code is op.BRANCH:
        return [way for branch in argument[1] for way in _sequence(branch)]
    if code is op.SUBPATTERN:
        return _sequence(argument[-1])
    if code in (op.MAX_REPEAT, op.MIN_REPEAT):
        fewest, most, inner = argument
        if (fewest, most) == (0, 1):
            return ["", *_sequence(inner)]
        return [_GAP if inner[0][0] is op.ANY and most is op.MAXREPEAT else _HOLE]
    return [""] if code in (op.AT, op.ASSERT, op.ASSERT_NOT) else [_HOLE]
