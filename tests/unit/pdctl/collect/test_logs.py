"""Logs: the end as it is, telling lines from before, across real rotations."""

from __future__ import annotations

import asyncio
import logging.handlers
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pdctl.collect import locate
from pdctl.collect.context import Context, Deadline
from pdctl.collect.fetch import Fetcher
from pdctl.collect.logs import take_files
from pdctl.collect.records import Taken
from pdctl.evidence.directory import evidence_of
from tests.waiting import eventually

DEATH = "[2026-06-19 01:00:00 TP0] Exception in thread Thread-7 (bootstrap_thread):"


def taken_of(*paths: Path, tail_bytes: int = 4 << 20) -> dict[str, Taken]:
    async def once() -> list[Taken]:
        fetcher = Fetcher()
        return await take_files(paths, Context(fetcher=fetcher, deadline=Deadline(30)), tail_bytes)

    return {item.name: item for item in asyncio.run(once())}


def routine(hour: int, count: int) -> str:
    return "".join(
        f"[2026-06-19 {hour:02d}:{at // 60:02d}:{at % 60:02d} TP0] Decode batch. #{at}\n" for at in range(count)
    )


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times in logs are local: let local be UTC here."""
    monkeypatch.setattr("pdctl.collect.logs.local_utc_offset", lambda: datetime.now(UTC).utcoffset())


def test_a_short_log_is_taken_whole(tmp_path: Path) -> None:
    """Nothing is cut, and the record says since when every line is there."""
    log = tmp_path / "x.log"
    log.write_text(routine(3, 100))
    taken = taken_of(log)
    assert list(taken) == ["log.txt"]
    assert taken["log.txt"].content == log.read_bytes()
    assert taken["log.txt"].truncated is False
    assert taken["log.txt"].covers_since == datetime(2026, 6, 19, 3, 0, 0, tzinfo=UTC)


def test_of_a_long_log_the_end_and_the_telling_lines_are_taken(tmp_path: Path) -> None:
    """A thread that died hours ago is found; no line is there twice and none is cut in two."""
    log = tmp_path / "x.log"
    log.write_text(routine(0, 3000) + DEATH + "\n" + routine(2, 3000) + DEATH.replace("01:", "03:") + "\n")
    taken = taken_of(log, tail_bytes=10_000)
    assert taken["log.earlier.txt"].content == (DEATH + "\n").encode()
    tail = taken["log.txt"].content or b""
    assert log.read_bytes().endswith(tail)
    assert tail.startswith(b"[2026-06-19 02:")
    assert 9_900 < len(tail) <= 10_000
    assert taken["log.txt"].truncated is True
    assert taken["log.txt"].covers_since == datetime.strptime(tail[1:20].decode(), "%Y-%m-%d %H:%M:%S").replace(
        tzinfo=UTC
    )


def test_the_analysis_reads_the_lines_in_their_order(tmp_path: Path) -> None:
    """Earlier lines come first, and completeness counts from the tail alone."""
    log = tmp_path / "x.log"
    log.write_text(DEATH + "\n" + routine(2, 3000))
    taken = taken_of(log, tail_bytes=10_000)
    captured = f'[[file]]\nname = "log.txt"\ncovers_since = {taken["log.txt"].covers_since:%Y-%m-%dT%H:%M:%SZ}\n'
    files = {f"p/{name}": item.content or b"" for name, item in taken.items()} | {
        "topology.toml": b'[[instance]]\nname = "p"\n',
        "p/capture.toml": captured.encode(),
    }
    instance = evidence_of(files).instances[0]
    assert instance.log is not None
    assert instance.log[0].message.startswith("Exception in thread")
    assert instance.capture.log_covers_since == taken["log.txt"].covers_since
    assert instance.capture.log_covers_since > datetime(2026, 6, 19, 2, 0, 0, tzinfo=UTC)


def test_rotated_files_are_read_oldest_first(tmp_path: Path) -> None:
    """The window reaches across what Python's own rotation has set aside."""
    log = tmp_path / "engine.log"
    handler = logging.handlers.RotatingFileHandler(log, maxBytes=5_000, backupCount=3)
    for number in range(400):
        handler.emit(logging.makeLogRecord({"msg": f"line {number:04d} of an engine that is talkative"}))
    handler.close()
    (tmp_path / "engine.log.bak").write_text("not ours")
    (tmp_path / "engine.log.1.gz").write_text("packed")
    for age, name in enumerate(("engine.log", "engine.log.1", "engine.log.2", "engine.log.3")):
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    paths = locate.rotated_files(log)
    assert [path.name for path in paths] == ["engine.log.3", "engine.log.2", "engine.log.1", "engine.log"]
    content = taken_of(*paths)["log.txt"].content or b""
    numbers = [int(line.split()[1]) for line in content.splitlines()]
    assert numbers == list(range(numbers[0], 400))
    assert numbers[0] < 100


def test_a_log_that_is_rotated_meanwhile_has_no_gap(tmp_path: Path) -> None:
    """Whatever moment a rotation by copy and truncation falls on, no line between first and last is missing."""
    log = tmp_path / "x.log"
    script = (
        "import os, shutil\n"
        f"path = {str(log)!r}\n"
        "number = 0\n"
        "while True:\n"
        "    with open(path, 'a') as file:\n"
        "        for _ in range(500):\n"
        "            number += 1\n"
        "            file.write(f'line {number:09d}\\n')\n"
        "    if number % 5000 == 0:\n"
        "        shutil.copy(path, path + '.tmp')\n"
        "        os.replace(path + '.tmp', path + '.1'); os.truncate(path, 0)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", script])
    try:
        eventually(lambda: log.with_name("x.log.1").exists())
        for _ in range(30):
            content = taken_of(*locate.rotated_files(log))["log.txt"].content or b""
            numbers = {int(line[5:]) for line in content.split(b"\n") if len(line) == 14}
            assert numbers == set(range(min(numbers), max(numbers) + 1))
    finally:
        writer.kill()
        writer.wait()


def test_binary_colours_and_lines_of_a_megabyte_are_no_obstacle(tmp_path: Path) -> None:
    """What a broken engine prints is taken as it is; grep does not call it binary."""
    log = tmp_path / "x.log"
    log.write_bytes(
        b"\x00\xff\xfe\x1b[31m"
        + b"x" * 1_000_000
        + b"\n"
        + DEATH.encode()
        + b"\r\n"
        + b"y" * 1_000_000
        + b"\n"
        + b"end\n"
    )
    taken = taken_of(log, tail_bytes=100)
    assert taken["log.earlier.txt"].content == DEATH.encode() + b"\r\n"
    assert taken["log.txt"].content == b"end\n"


def test_a_key_that_the_tail_cuts_in_two_is_not_taken(tmp_path: Path) -> None:
    """Without its beginning it could not be known as a key; so too where lines end by \\r alone, or never."""
    log = tmp_path / "x.log"
    for end, wanted in ((b"\n", b"end\n"), (b"\r", b"end\r"), (b" ", b"")):
        log.write_bytes(b"api_key=" + b"s" * 100 + end + b"end" + end)
        assert taken_of(log, tail_bytes=50)["log.txt"].content == wanted


def test_a_key_that_a_rotation_cuts_in_two_is_not_taken(tmp_path: Path) -> None:
    """A telling line that began in the file before: its second half lacks what introduces the key."""
    older, log = tmp_path / "x.log.1", tmp_path / "x.log"
    older.write_text(DEATH + "\napi_key=abc")
    log.write_text(f"defghi {DEATH}\n{DEATH}\n" + routine(2, 300))
    assert taken_of(older, log, tail_bytes=1000)["log.earlier.txt"].content == f"{DEATH}\n{DEATH}\n".encode()


def test_a_log_that_is_gone_is_no_fault(tmp_path: Path) -> None:
    """A file that vanished since it was found leaves an empty log, not an error."""
    assert taken_of(tmp_path / "gone.log")["log.txt"].content == b""
