"""`pdctl redact`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def redact(
    evidence: Annotated[Path, typer.Argument(help="A kept folder, or an older archive.", metavar="PATH")],
    out: Annotated[Path | None, typer.Option("--out", help="Where the archive goes; default: beside it.")] = None,
) -> None:
    """Make the shared archive of evidence that was kept: no prompts, completions, names, addresses, credentials.

    What replaces names keeps equality, networks and loopback, so `pdctl diagnose` finds the same in it. Which
    pseudonym is whose is written beside the kept folder only, in its redaction.json.

    \b
    Examples:
      pdctl redact ~/.local/state/pdctl/default/incidents/20261129-165234-ca7b
      pdctl redact old.tar.gz --out clean.tar.gz
    """
    from pdctl.evidence.archive import share

    print(share(evidence, out))
