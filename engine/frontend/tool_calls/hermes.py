"""Hermes and Qwen: `<tool_call>` {"name": ..., "arguments": {...}} `</tool_call>`, one or more, text before them."""

from __future__ import annotations

from engine.frontend.tool_calls.call_scanner import CallScanner, Scan
from engine.frontend.tool_calls.calls import CallFormat, Part, Text, Tool, ToolCallParser
from engine.frontend.tool_calls.rules import call_rules

BEGIN, END = "<tool_call>", "</tool_call>"
FREE = rf"""start: (opened call)%s TEXT
opened[lazy]: /(.|\n)*{BEGIN}/
TEXT: /(.|\n)*/ & ~/(.|\n)*{BEGIN}(.|\n)*/"""
"""Text with calls in it: an opening tag is never text."""


class HermesParser:
    """text -> (BEGIN) call -> (object ends) closing -> (END) text"""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._held = ""
        """Text that may be the beginning of a tag, or white space before one."""
        self._scanner: CallScanner | None = None
        self._is_closing = False
        self._calls = 0

    def push(self, text: str) -> list[Part]:
        """Return what is settled by more text."""
        self._held += text
        parts: list[Part] = []
        while True:
            before = len(self._held), self._scanner, self._is_closing
            parts += self._step()
            if before == (len(self._held), self._scanner, self._is_closing):
                return parts

    def flush(self) -> list[Part]:
        """Return what is left: a call that broke off before its name is text."""
        held, self._held = self._held, ""
        scanner, self._scanner = self._scanner, None
        if scanner is not None and not scanner.is_begun:
            held = BEGIN + scanner.raw + held
        elif self._calls and not held.strip():
            held = ""
        return [Text(held)] if held and not self._is_closing else []

    def _step(self) -> list[Part]:
        if self._scanner is not None:
            return self._in_call(self._scanner)
        if self._is_closing:
            self._close()
            return []
        return self._in_text()

    def _in_text(self) -> list[Part]:
        before, tag, rest = self._held.partition(BEGIN)
        if tag:
            self._held = rest
            self._scanner = CallScanner(self._calls, self._names)
            return _text(before.rstrip())
        shown = before[: len(before) - _tag_length(before)].rstrip()
        self._held = before[len(shown) :]
        return _text(shown)

    def _in_call(self, scanner: CallScanner) -> list[Part]:
        parts, self._held = scanner.push(self._held)
        if scanner.state is Scan.DONE:
            self._calls += 1
            self._scanner, self._is_closing = None, True
        elif scanner.state is Scan.BROKEN:
            self._scanner = None
            parts += [Text(BEGIN + scanner.raw)]
        return parts

    def _close(self) -> None:
        """Drop the closing tag, or do without it where the model forgot it."""
        rest = self._held.lstrip()
        if rest.startswith(END):
            self._held, self._is_closing = rest.removeprefix(END), False
        elif not END.startswith(rest):
            self._is_closing = False


def _text(text: str) -> list[Part]:
    return [Text(text)] if text else []


def _tag_length(text: str) -> int:
    """Return the length of the end of `text` that may be the beginning of a tag."""
    longest = min(len(text), len(BEGIN) - 1)
    return next((n for n in range(longest, 0, -1) if BEGIN.startswith(text[-n:])), 0)


def _parser(names: frozenset[str]) -> ToolCallParser:
    return HermesParser(names)


def _rules(tools: list[Tool], is_many: bool, is_free: bool) -> str:
    if is_free:
        return call_rules(FREE % ("*" if is_many else "?"), tools, "arguments", "\n", f"\n{END}")
    start = 'start: call ("\\n" call)*' if is_many else "start: call"
    return call_rules(start, tools, "arguments", f"{BEGIN}\n", f"\n{END}")


HERMES = CallFormat("hermes", (BEGIN, "<tools>"), _parser, _rules)
