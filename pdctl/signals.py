"""The signals that end a command: Ctrl-C, a time limit of CI, a closed terminal. All three end it alike."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_alike() -> None:
    """Let each raise KeyboardInterrupt; also Ctrl-C itself, which shells hide from what they start with `&`."""
    for number in ENDING:
        signal.signal(number, signal.default_int_handler)


@contextmanager
def ignored() -> Iterator[None]:
    """Let none of them leave half of a clean-up."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held() -> Iterator[None]:
    """Let them come afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
