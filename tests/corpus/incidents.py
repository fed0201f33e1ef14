"""The corpus: folders, truths, and the sources an ablation takes away."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from pdctl.evidence.directory import NEVER_READ, evidence_of
from pdctl.evidence.model import Evidence

CORPUS = Path(__file__).parent / "incidents"

SOURCES: Mapping[str, tuple[str, ...]] = {
    "logs": ("log.", "kernel."),
    "stacks": ("stacks.", "native."),
    "metrics": ("metrics.", "loads."),
}
"""Name of an ablation -> beginnings of the files it takes away."""


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """The right answer."""

    label: str
    also: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    never_actions: tuple[str, ...] = ()
    wedge: bool = False
    abstain: bool = False
    thin: bool = False

    @property
    def accepted(self) -> frozenset[str]:
        """Labels that count as right."""
        return frozenset((self.label, *self.also))


class Incident(msgspec.Struct, frozen=True):
    """One folder."""

    name: str
    files: dict[str, bytes]
    truth: Truth

    @property
    def number(self) -> int:
        return int(self.name[1:])

    @property
    def is_develop_half(self) -> bool:
        """Odd folders were read while the analyzers were written; even ones were scored blind first."""
        return self.number % 2 == 1

    def evidence(self, without: str | None = None) -> Evidence:
        """Return the evidence, without a kind of source."""
        dropped = SOURCES[without] if without else ()
        kept = {
            name: data for name, data in self.files.items() if not name.rpartition("/")[2].startswith(dropped or "\0")
        }
        return evidence_of(kept)


def incidents(root: Path = CORPUS) -> Iterator[Incident]:
    """Yield every folder that has a truth, by name."""
    for folder in sorted(root.iterdir()):
        if (folder / "truth.toml").is_file():
            yield load(folder)


def load(folder: Path) -> Incident:
    """Read one folder."""
    truth = msgspec.convert(tomllib.loads((folder / "truth.toml").read_text()), Truth)
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in NEVER_READ
    }
    return Incident(folder.name, files, truth)
