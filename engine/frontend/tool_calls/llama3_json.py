"""Llama 3: an answer that is nothing but {"name": ..., "parameters": {...}}, or several with semicolons between.

`<|python_tag|>`, which some write before it, is a special token and never part of the text.
"""

from __future__ import annotations

from engine.frontend.tool_calls.call_scanner import CallScanner, Scan
from engine.frontend.tool_calls.calls import CallFormat, Part, Text, Tool, ToolCallParser
from engine.frontend.tool_calls.rules import call_rules

BETWEEN = "; \t\r\n"
FREE = r""" | TEXT?
TEXT: /[^{; \t\r\n](.|\n)*/"""
"""Or text, which does not begin as calls do."""


class LlamaParser:
    """between -> ({) call -> (object ends) between; anything else is text to the end."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._held = ""
        """What stands between two calls, or before the first."""
        self._scanner: CallScanner | None = None
        self._is_text = False
        self._calls = 0

    def push(self, text: str) -> list[Part]:
        """Return what is settled by more text."""
        parts: list[Part] = []
        while text:
            if self._is_text:
                return [*parts, Text(text)]
            if self._scanner is None:
                text = self._between(text)
            if self._scanner is not None and text:
                found, text = self._scanner.push(text)
                parts += found + self._after(self._scanner)
        return [*parts, *self._become_text()]

    def flush(self) -> list[Part]:
        """Return what is left: a call that broke off before its name is text, blanks behind a call are nothing."""
        if self._scanner is not None and not self._scanner.is_begun:
            return [Text(self._held + self._scanner.raw)]
        return [] if self._calls or self._scanner is not None or not self._held else [Text(self._held)]

    def _between(self, text: str) -> str:
        """Hold what separates calls; return the text from the next call on, or make all of it text."""
        rest = text.lstrip(BETWEEN)
        self._held += text[: len(text) - len(rest)]
        if rest.startswith("{"):
            self._scanner = CallScanner(self._calls, self._names)
            return rest
        if rest:
            self._held += rest
            self._is_text = True
        return ""

    def _after(self, scanner: CallScanner) -> list[Part]:
        if scanner.state is Scan.DONE:
            self._calls += 1
            self._scanner, self._held = None, ""
        elif scanner.state is Scan.BROKEN:
            self._held += scanner.raw
            self._scanner, self._is_text = None, True
            return self._become_text()
        return []

    def _become_text(self) -> list[Part]:
        if not self._is_text or not self._held:
            return []
        held, self._held = self._held, ""
        return [Text(held)]


def _parser(names: frozenset[str]) -> ToolCallParser:
    return LlamaParser(names)


def _rules(tools: list[Tool], is_many: bool, is_free: bool) -> str:
    start = 'start: call ("; " call)*' if is_many else "start: call"
    return call_rules(start + FREE if is_free else start, tools, "parameters", "", "")


LLAMA3_JSON = CallFormat("llama3_json", ('"parameters": ', "<|python_tag|>"), _parser, _rules)
