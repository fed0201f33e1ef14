"""Write the completions of this checkout, or check them."""

from __future__ import annotations

import sys
from pathlib import Path

from pdctl.cli.completions import generate

FOLDER = Path(__file__).resolve().parents[3] / "completions"


def main(arguments: list[str]) -> int:
    """Return 1 with `--check` if a file is not as it would be written."""
    texts = generate()
    if arguments == ["--check"]:
        stale = [name for name, text in texts.items() if not _is(FOLDER / name, text)]
        for name in stale:
            print(f"{FOLDER / name} is out of date: run `make completions`", file=sys.stderr)
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


sys.exit(main(sys.argv[1:]))
