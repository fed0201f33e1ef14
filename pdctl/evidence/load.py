"""Evidence from whatever holds it: a kept folder, one filled by hand, or an archive."""

from __future__ import annotations

from pathlib import Path

from pdctl.evidence import archive
from pdctl.evidence.directory import NEVER_READ, evidence_of, read_directory
from pdctl.evidence.model import Evidence


def read_shareable(path: Path) -> Evidence:
    """Load the same without what must not leave the house: content, credentials, names, addresses.

    Raises UsageError as `read_evidence` does.
    """
    return evidence_of(archive.shared_files(path))


def read_evidence(path: Path) -> Evidence:
    """Load a folder or an archive. Raises UsageError for what is neither, or holds what no honest one does."""
    if not path.is_file():
        return read_directory(path)
    files = {name: data for name, data in archive.read(path).items() if Path(name).name not in NEVER_READ}
    return evidence_of(files)
