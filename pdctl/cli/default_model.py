"""`make model`: fetch the default model into the cache and print its path. No command of its own: `up` does it too."""

from __future__ import annotations

import sys

from pdctl.deployment import model_files
from pdctl.errors import PdctlError
from pdctl.render import console, fetching


def main() -> int:
    """Fetch what is not there yet; return the exit code."""
    try:
        with fetching.display() as progress:
            print(model_files.resolve(model_files.DEFAULT, progress, console.tell).path)
    except PdctlError as error:
        console.tell(f"{error.message}\n  -> {error.hint}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
