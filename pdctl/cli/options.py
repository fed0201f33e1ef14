"""Options that several commands share, so that they look alike everywhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Output(StrEnum):
    """Form of the data on stdout; progress and errors go to stderr in any case."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Form of the result.")]
FileOption = Annotated[
    Path | None, typer.Option("--file", help="Deployment file; default ./pd.toml, else what was used last.")
]
NameOption = Annotated[str | None, typer.Option("--name", help="Deployment by its name.")]
