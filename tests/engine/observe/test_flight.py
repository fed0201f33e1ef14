"""The flight recorder: what is written is what is read, whatever happened to the writer."""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ConfigError
from engine.observe import flight_format
from engine.observe.flight import FlightRecorder
from pdctl.evidence import flight_format as pdctl_flight
from pdctl.evidence.flight_format import HEADER_BYTES, NotAFlightFile, read_flight
from tests.engine.clock import ManualClock
from tests.waiting import eventually

INCARNATION = "0123456789abcdef" * 2
ROOT = Path(__file__).parents[3]


def recorder(path: Path, slots: int = 8) -> FlightRecorder:
    return FlightRecorder(path, ManualClock(), "prefill-0", INCARNATION, slots=slots)


def test_both_packages_carry_the_same_format() -> None:
    """pdctl reads what the engine writes: its copy of the module is equal to the byte."""
    copies = [Path(module.__file__).read_bytes() for module in (flight_format, pdctl_flight) if module.__file__]
    assert copies[0] == copies[1]


def test_a_step_is_where_the_documentation_says(tmp_path: Path) -> None:
    """The second record of a file lies at 4096 + 128, little-endian, with a crc32 of its first 124 bytes."""
    made = recorder(tmp_path / "f")
    made.step_ends(number=41, sequences=3, seconds=0.25)
    data = (tmp_path / "f").read_bytes()
    assert data[:8] == b"PDFLIGHT"
    assert struct.unpack_from("<III", data, 8) == (1, 128, 8)
    record = data[4096 + 128 : 4096 + 256]
    assert struct.unpack_from("<Q", record, 0) == (2,)
    assert struct.unpack_from("<HHIqq", record, 16) == (3, 0, 3, 41, 250_000)
    assert struct.unpack_from("<I", record, 124) == (zlib.crc32(record[:124]),)


def test_the_ring_keeps_the_newest(tmp_path: Path) -> None:
    """After twenty records in eight slots the last eight are there, oldest first."""
    made = recorder(tmp_path / "f")
    for number in range(19):
        made.step_begins(number, 1, 16)
    found = read_flight((tmp_path / "f").read_bytes())
    assert [record.number for record in found.records] == list(range(12, 20))
    assert [record.subject for record in found.records] == list(range(11, 19))
    assert (found.instance, found.incarnation, found.torn) == ("prefill-0", INCARNATION, 0)


def test_a_record_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    """Half a record, as SIGKILL may leave it, is counted and hides no other."""
    made = recorder(tmp_path / "f")
    made.note("one")
    made.note("two")
    data = bytearray((tmp_path / "f").read_bytes())
    data[HEADER_BYTES + 128 + 60 : HEADER_BYTES + 256] = bytes(68)
    found = read_flight(bytes(data))
    assert [record.text for record in found.records] == ["prefill-0", "two"]
    assert found.torn == 1


def test_long_text_is_cut_between_characters(tmp_path: Path) -> None:
    """A text of 3-byte characters keeps 28 of them: 84 bytes."""
    recorder(tmp_path / "f").note("€" * 40)
    assert read_flight((tmp_path / "f").read_bytes()).records[-1].text == "€" * 28


def test_a_room_transition_reads_as_one(tmp_path: Path) -> None:
    """Side, states, event and request stand in one line; a room number above 2**63 comes back as a negative one."""
    recorder(tmp_path / "f").room("decode", 2**64 - 2, "reading", "all_read", "committing", "r1")
    record = read_flight((tmp_path / "f").read_bytes()).records[-1]
    assert (record.kind, record.subject) == ("room", -2)
    assert record.text == "decode reading>committing all_read r1"


@given(st.binary(max_size=6000))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """The reader raises nothing but NotAFlightFile, also behind a right header."""
    header = flight_format.pack_header(4, 1, 0.0, 0, "x", "y")
    for candidate in (data, header + data):
        try:
            read_flight(candidate)
        except NotAFlightFile:
            assert candidate is data


def test_a_killed_writer_leaves_a_readable_file(tmp_path: Path) -> None:
    """SIGKILL in the midst of writing: what is there is whole and in order."""
    path = tmp_path / "f"
    code = (
        "import sys; from pathlib import Path; from engine.clock import SystemClock\n"
        "from engine.observe.flight import FlightRecorder\n"
        "made = FlightRecorder(Path(sys.argv[1]), SystemClock(), 'x', 'y', slots=64)\n"
        "while True: made.note('again')"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], cwd=ROOT)
    try:
        eventually(lambda: path.exists() and len(read_flight(path.read_bytes()).records) >= 60)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    found = read_flight(path.read_bytes())
    numbers = [record.number for record in found.records]
    assert found.torn <= 1
    assert len(numbers) == 64 - found.torn
    assert numbers == sorted(numbers)
    assert found.pid == child.pid


def test_the_file_of_the_process_before_is_kept(tmp_path: Path) -> None:
    """A restart does not destroy what the crash left."""
    recorder(tmp_path / "f").note("before the crash")
    recorder(tmp_path / "f")
    assert read_flight((tmp_path / "f.previous").read_bytes()).records[-1].text == "before the crash"


def test_a_file_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    """A folder that is not there is named with the flag."""
    with pytest.raises(ConfigError, match=r"--flight-file .*/nowhere/f"):
        recorder(tmp_path / "nowhere" / "f")
