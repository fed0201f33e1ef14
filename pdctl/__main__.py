"""`python -m pdctl`, the same as `pdctl`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run one command and return its exit code."""
    try:
        # Within the try: a Ctrl-C in the 80 ms of these imports is no traceback either.
        from pdctl import cli

        return cli.main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
