"""Kills pdctl -9 at one line of the ledger. Python imports this by itself where its folder is on PYTHONPATH.

PDCTL_TEST_KILL=WHO:LINE:WHEN:MARKER with WHO client | executor | both (the executor and its client), WHEN before |
after that line is written, and MARKER a file that makes it happen only once.
"""

import os
import signal
import sys

WORD = "PDCTL_TEST_KILL"


def arm() -> None:
    who, line, when, marker = os.environ[WORD].split(":")
    is_executor = "pdctl.recover.executor" in sys.orig_argv
    if (who == "client" and is_executor) or (who != "client" and not is_executor):
        return
    from pdctl.recover import ledger

    append = ledger.Ledger.append

    def kill() -> None:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if who == "both":
            os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def counted(self: ledger.Ledger, entry: ledger.Entry) -> None:
        is_here = sum(len(item.entries) for item in self.recoveries()) + 1 == int(line)
        if is_here and when == "before":
            kill()
        append(self, entry)
        if is_here and when == "after":
            kill()

    ledger.Ledger.append = counted  # type: ignore[method-assign]


if WORD in os.environ and "pdctl" in " ".join(sys.orig_argv):
    arm()
