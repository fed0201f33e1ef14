"""`pdctl up --print-units`: files with their places, and what a person does with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pdctl.deployment.units import UnitFile

SCHEMA = "pdctl.units/1"
_HEAD = """\
# Nothing was installed. Put each part into the file that its first line names, then:
#   systemctl daemon-reload && systemctl enable --now {target}
# pd.toml is for pdctl: pdctl status --file pd.toml
"""


def as_text(files: Sequence[UnitFile], target: str) -> str:
    """Return all files one after the other, each below its path."""
    parts = [f"# ---- {file.path}\n{file.content}" for file in files]
    return "\n".join([_HEAD.format(target=target), *parts])


def as_json(files: Sequence[UnitFile], target: str) -> str:
    """Return one object."""
    return msgspec.json.format(msgspec.json.encode({"schema": SCHEMA, "target": target, "files": files})).decode()
