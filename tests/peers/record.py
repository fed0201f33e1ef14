"""Make a folder of the corpus of an incident that pdctl kept: `python -m tests.peers.record KEPT FOLDER`.

Each test of tests/peers leaves what it diagnosed in `state/pdctl/NAME/incidents/` below its folder of pytest's base
directory. The copy is redacted as the shared archive is, by the same code, so it names nothing of the machine that it
was taken on. What it shows, `truth.toml`, is written by whoever caused it.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from pdctl.evidence.redaction import Redaction

_KEY = b"corpus"
"""Pseudonyms need no secret here: what they stand for is of no interest, and the same input gives the same bytes."""
_LEFT_OUT = ("kernel.txt", "flight.bin", "manifest.json")
"""What the host's kernel said is not of the incident; the others are written anew or no text."""


def record(kept: Path, folder: Path) -> None:
    """Write the redacted copy; files that are there already are replaced."""
    paths = [path for path in sorted(kept.rglob("*")) if path.is_file() and path.name not in _LEFT_OUT]
    files = {path.relative_to(kept).as_posix(): path.read_bytes() for path in paths}
    for name, content in Redaction(files, _KEY, names=(socket.gethostname(),)).files().items():
        if any(os.fsencode(private) in content for private in (Path.cwd(), kept.resolve())):
            raise SystemExit(f"{name} names a folder of this machine after redaction")
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


if __name__ == "__main__":
    record(Path(sys.argv[1]), Path(sys.argv[2]))
