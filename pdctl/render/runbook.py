"""`pdctl explain`: markdown drawn on a terminal, as it is written elsewhere."""

from __future__ import annotations

import sys

import msgspec

from pdctl.diagnose.catalogue import Code
from pdctl.render import console
from pdctl.runbooks import read_runbook


def as_json(codes: tuple[Code, ...]) -> str:
    """Return `{code, name, label, level, action, title, markdown}` for each."""
    rows = [
        {
            "code": item.code,
            "name": item.name,
            "label": item.label,
            "level": str(item.level),
            "action": str(item.action),
            "title": item.title,
            "markdown": read_runbook(item),
        }
        for item in codes
    ]
    return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode()


def show(codes: tuple[Code, ...]) -> None:
    """Print the runbooks on stdout."""
    show_text("\n".join(read_runbook(item) for item in codes))


def show_text(text: str) -> None:
    """Print markdown on stdout: drawn on a terminal, as it is elsewhere."""
    if not sys.stdout.isatty():
        print(text, end="")
        return
    from rich.markdown import Markdown  # 100 ms of CPU: only where it is drawn

    console.stdout_console().print(Markdown(text, code_theme="ansi_dark"))
