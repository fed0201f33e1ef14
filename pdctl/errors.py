"""pdctl's exception tree; the command line turns it into one message and an exit code.

PdctlError               exit 4: a fault of pdctl or of this machine
├── UsageError           exit 2: a flag, file or value is wrong
├── NotProven            exit 1: what was asked for did not come true
├── CannotTell           exit 3: there was not enough to decide
└── Refused              exit 5: a safety gate said no
"""

from __future__ import annotations


class PdctlError(Exception):
    """`message` says what was tried, on what, and what came back; `hint` what to do next."""

    exit_code = 4

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(PdctlError):
    """The command line, a deployment file or a value in it is wrong."""

    exit_code = 2


class NotProven(PdctlError):
    """An instance did not come up, a probe did not pass."""

    exit_code = 1


class CannotTell(PdctlError):
    """Evidence was missing."""

    exit_code = 3


class Refused(PdctlError):
    """A safety gate refused; nothing was changed."""

    exit_code = 5
