"""Log lines without what clients wrote or were answered: text and token ids go, their lengths stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_KEYS = (
    r"(?:prompts?|text|content|inputs?|input_text|question|completions?|output_text|answer|generated_text|"
    r"delta|reasoning_content|arguments|messages|user_input|"
    r"(?:input|output|prompt|token|prompt_token|output_token|completion_token)_ids|input_embeds)"
)
_INTRODUCED = re.compile(rf"""((?<![\w#-])\\*["']?{_KEYS}\\*["']?\s*[:=]\s*)(?=\\*["'\[{{])""", re.I)
_BARE = re.compile(
    r"""((?<![\w#-])(?:prompt|completion|generated_text|user_input|question)\s*[:=]\s+)(?=[^\d\s"'\[{\\])(.+)$""", re.I
)
_QUOTED = re.compile(r"""(?<!\w)("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')(?!\w)""")
_EXPLAINED = re.compile(r"(?:^|\W)(?:err|error|msg|message|reason|detail|cause)=$")
"""Before a quoted string: the engine's own words follow."""
_HINT = re.compile(r"prompt|text|content|input|question|completion|output|answer|delta|arguments|messages|_ids|embeds")
"""In lower case; a line without any has no telling key. Ten times faster than the rules themselves."""
_MOST_WORDS = 4
_MOST_CHARS = 120
_IDS = re.compile(r"\[\s*\d+(?:\s*,\s*\d+){7,}\s*(?:\]|,?\s*(?:\.\.\.)?\s*$)")
_CLOSING = {"[": "]", "{": "}"}


def without_content(lines: Iterator[str], clean: Callable[[str], str]) -> Iterator[str]:
    """Yield the lines without clients' words; `clean` is applied to what stays. A text over several lines is one."""
    waiting_for = ""
    for line in lines:
        if waiting_for:
            end = _end(line, waiting_for, 0)
            if end is None:
                yield f"<{len(line)} chars>"
                continue
            line = f"<{end} chars>{line[end:]}"
            waiting_for = ""
        if _HINT.search(line.lower()):
            line, waiting_for = _without_introduced(line)
            line = _BARE.sub(lambda match: f"{match[1]}<{len(match[2])} chars>", line)
        if "[" in line and line.count(",") >= 7:
            line = _IDS.sub(lambda match: f"[<{match[0].count(',') + 1} ids>]", line)
        yield clean(_QUOTED.sub(_short_only, line) if '"' in line or "'" in line else line)


def _without_introduced(line: str) -> tuple[str, str]:
    """Return the line without the values behind telling keys, and the end that the last of them still waits for."""
    done, position = "", 0
    while match := _INTRODUCED.search(line, position):
        start = match.end()
        mark = re.match(r"""\\*["'\[{]""", line[start:])
        assert mark is not None
        opening = mark[0]
        closing = opening[:-1] + _CLOSING.get(opening[-1], opening[-1])
        end = _end(line, closing, start + len(opening))
        done += line[position:start]
        if end is None:
            return f"{done}{opening}<{len(line) - start} chars>", closing
        done += f"{opening}<{end - start} chars>{closing}"
        position = end
    return done + line[position:], ""


def _end(text: str, closing: str, start: int) -> int | None:
    """Return where a quoted string or a bracket ends (behind its end), None where it does not."""
    if closing[-1] in "]}":
        return _end_of_bracket(text, closing[-1], start)
    position = start
    while (found := text.find(closing, position)) >= 0:
        before = len(text[:found]) - len(text[:found].rstrip("\\"))
        if before % 2 == 0 or len(closing) > 1:
            return found + len(closing)
        position = found + 1
    return None


def _end_of_bracket(text: str, closing: str, start: int) -> int | None:
    """Return where the bracket closes; brackets in quoted strings do not count."""
    opening = {"]": "[", "}": "{"}[closing]
    depth, quote, position = 1, "", start
    while position < len(text):
        char = text[position]
        if char == "\\":
            position += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in (opening, closing):
            depth += 1 if char == opening else -1
            if depth == 0:
                return position + 1
        position += 1
    return None


def _short_only(match: re.Match[str]) -> str:
    """Keep quoted words and short messages; a sentence in quotes may be anybody's."""
    inner = match[0][1:-1]
    before = match.string[max(0, match.start() - 10) : match.start()]
    if (len(inner) <= _MOST_CHARS and inner.count(" ") < _MOST_WORDS) or _EXPLAINED.search(before):
        return match[0]
    return f"{match[0][0]}<{len(inner)} chars>{match[0][0]}"
