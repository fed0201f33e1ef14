"""`pdctl codes`."""

from __future__ import annotations

from pdctl.cli.options import Output, OutputOption


def codes(output: OutputOption = Output.TABLE) -> int:
    """List every finding: code, level, action, what it means.

    \b
    Examples:
      pdctl codes
      pdctl codes -o json | jq -r '.[].code'
    """
    from pdctl.render.codes_table import as_json, as_table

    print(as_json() if output is Output.JSON else as_table())
    return 0
