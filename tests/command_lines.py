"""Whether the calls of `pdctl` that we print or write down would be understood."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator

import click

from pdctl.cli import command_tree

_FENCED = re.compile(r"^```\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`(pdctl [^`]+)`")


def calls_in(markdown: str) -> Iterator[str]:
    """Yield each call of pdctl in fenced blocks and between backticks, with what it is piped into."""
    for block in _FENCED.findall(markdown):
        yield from (line for line in block.splitlines() if line.startswith("pdctl "))
    yield from _INLINE.findall(_FENCED.sub("", markdown))


def parse(call: str) -> None:
    """Parse one call, up to a pipe, against the real command tree. Raises click.ClickException where it is wrong."""
    lexer = shlex.shlex(call, posix=True, punctuation_chars="|;&")
    lexer.whitespace_split = True
    program, name, *arguments = itertools.takewhile(lambda word: word[0] not in "|;&", lexer)
    assert program == "pdctl"
    root = command_tree()
    assert isinstance(root, click.Group)
    context = click.Context(root, info_name=program)
    command = root.get_command(context, name)
    if command is None:
        raise click.UsageError(f"there is no command {name}")
    command.make_context(name, arguments, parent=context)
