"""The journal of a unit, from a real journald of its own."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.collect import journal
from pdctl.collect.context import Context, Deadline
from pdctl.collect.fetch import Fetcher
from pdctl.collect.records import Status, Taken
from tests.waiting import eventually

UNIT = "pd@p0.service"
PLACES = (Path("/usr/lib/systemd/systemd-journald"), Path("/lib/systemd/systemd-journald"))
JOURNALD = next((path for path in PLACES if path.exists()), None)


class Journald:
    """A journald with a namespace of its own, to which lines are sent as if a unit had printed them."""

    def __init__(self) -> None:
        self.namespace = f"pdctl{secrets.token_hex(4)}"
        self._run = Path(f"/run/systemd/journal.{self.namespace}")
        self._run.mkdir(parents=True)
        assert JOURNALD is not None
        self._process = subprocess.Popen([JOURNALD, self.namespace], stderr=subprocess.DEVNULL)
        eventually((self._run / "socket").exists)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.connect(str(self._run / "socket"))

    def print(self, *lines: bytes) -> None:
        for line in lines:
            message = b"MESSAGE\n" + struct.pack("<Q", len(line)) + line
            # Of what root sends, -u reads this field too; the one that names the unit itself cannot be sent.
            self._socket.send(message + b"\nPRIORITY=6\nOBJECT_SYSTEMD_UNIT=" + UNIT.encode() + b"\n")

    def close(self) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait()
        for folder in (self._run, *Path("/var/log/journal").glob(f"*.{self.namespace}")):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in Path("/run/log/journal").glob(f"*.{self.namespace}"):
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def journald() -> Iterator[Journald]:
    if os.geteuid() != 0 or JOURNALD is None or shutil.which("journalctl") is None:
        message = "needs root and systemd-journald: apt-get install systemd"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    started = Journald()
    yield started
    started.close()


def taken_of(journald: Journald) -> dict[str, Taken]:
    async def once() -> list[Taken]:
        fetcher = Fetcher()
        context = Context(fetcher=fetcher, deadline=Deadline(30))
        return await journal.take_journal(UNIT, context, source=(f"--namespace={journald.namespace}",))

    return {item.name: item for item in asyncio.run(once())}


def test_messages_come_as_they_were_printed(journald: Journald) -> None:
    """Colours, bytes that are no UTF-8 and lines above 4096 bytes are kept, in order."""
    lines = [b"first", b"\x1b[31mred\x1b[0m \xff", b"long " + b"x" * 6000, b"last"]
    journald.print(*lines)
    eventually(lambda: b"last" in (taken_of(journald)["log.txt"].content or b""))
    taken = taken_of(journald)
    assert list(taken) == ["log.txt"]
    assert taken["log.txt"].content == b"\n".join(lines) + b"\n"
    assert taken["log.txt"].truncated is False
    assert taken["log.txt"].covers_since is not None


def test_before_the_end_only_telling_lines_are_taken(journald: Journald, monkeypatch: pytest.MonkeyPatch) -> None:
    """The death of a thread is found by its words as they are spelled, before the lines that are kept whole."""
    monkeypatch.setattr(journal, "LINES", 5)
    noise = [b"decode batch %d" % number for number in range(40)]
    journald.print(b"Exception in thread Thread-7", b"EXCEPTION IN THREAD is no such thing", *noise)
    eventually(lambda: b"batch 39" in (taken_of(journald)["log.txt"].content or b""))
    taken = taken_of(journald)
    assert taken["log.txt"].content == b"".join(line + b"\n" for line in noise[-5:])
    assert taken["log.txt"].truncated is True
    assert taken["log.earlier.txt"].content == b"Exception in thread Thread-7\n"


def test_a_unit_without_lines_is_absent(journald: Journald) -> None:
    """A name that the journal does not know is said so, and is no empty log."""
    taken = taken_of(journald)["log.txt"]
    assert (taken.status, taken.content) == (Status.ABSENT, None)
    assert UNIT in (taken.error or "")
