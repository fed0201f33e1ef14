"""One runbook a finding, as markdown beside this file: what it means, how it looks, what to do at 3 a.m."""

from __future__ import annotations

import difflib
from importlib import resources

from pdctl.diagnose.catalogue import CATALOGUE, Code
from pdctl.errors import UsageError

HEADINGS = (
    "What it means",
    "How it looks",
    "Confirm",
    "Tell it from",
    "Act",
    "Prevent",
    "Upstream versions",
)
"""The parts of every runbook, in this order."""


def read_runbook(code: Code) -> str:
    """Return the markdown of one finding; needs no network and no deployment."""
    return resources.files("pdctl").joinpath(code.runbook).read_text(encoding="utf-8")


def findings_called(word: str) -> tuple[Code, ...]:
    """Return the findings that a code, a name or a label means; a label may have several.

    Raises UsageError for a word that none has, with those that look most like it.
    """
    found = tuple(item for item in CATALOGUE if word.upper() == item.code or word.lower() in (item.name, item.label))
    if found:
        return found
    words = dict.fromkeys(name for item in CATALOGUE for name in (item.code, item.name, item.label))
    by_case = {name.lower(): name for name in words}
    near = [by_case[name] for name in difflib.get_close_matches(word.lower(), by_case, n=3, cutoff=0.5)]
    meant = f"did you mean {', '.join(near)}? " if near else ""
    raise UsageError(f"there is no finding {word!r}", f"{meant}`pdctl codes` lists them all")
