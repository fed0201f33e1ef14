"""`pdctl diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdctl.cli.options import Output, OutputOption

_KEPT = "A kept folder or archive."


def diff(
    before: Annotated[Path, typer.Argument(help=_KEPT, metavar="A")],
    after: Annotated[Path, typer.Argument(help=_KEPT, metavar="B")],
    every: Annotated[bool, typer.Option("--all", help="What is equal, too.")] = False,
    output: OutputOption = Output.TABLE,
) -> int:
    """Hold two incidents, or a good day and a bad one, against each other.

    Side by side: verdict, symptoms, causes, versions, flags, environment, page size and types, ages, restarts. Names
    are compared as they stand: a shared archive has pseudonyms, compare it with another shared one.

    \b
    Examples:
      pdctl diff incidents/20261128-031500-a1b2 incidents/20261129-041200-c3d4
      pdctl diff good/ bad/ -o json | jq '.[] | select(.section == "flags")'

    \b
    Exit codes: 0 nothing differs, 1 something does.
    """
    from pdctl.cli.evidence import kept_at
    from pdctl.diagnose.comparison import compare
    from pdctl.render import comparison as rendered

    rows = compare(kept_at(before), kept_at(after))
    shown = rows if every else tuple(row for row in rows if row.differs)
    print(rendered.as_json(shown) if output is Output.JSON else rendered.as_lines(shown, str(before), str(after)))
    return 1 if any(row.differs for row in rows) else 0
