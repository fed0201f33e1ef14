"""How every benchmark runs as a command."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import NoReturn


def run(main: Callable[[], int | None]) -> NoReturn:
    """Exit with what `main` returns. Ctrl-C (130) and SIGTERM (143) unwind it, so that what it started ends with it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
