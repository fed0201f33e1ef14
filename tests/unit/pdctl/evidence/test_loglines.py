"""Log bytes -> lines."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.evidence import loglines
from pdctl.evidence.loglines import parse_log

_NOW = datetime(2026, 8, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "at", "rank", "message"),
    [
        (
            "[2026-06-19 11:17:31 DP0 TP3] Decode batch, #running-req: 2",
            (6, 19, 11, 17, 31),
            "DP0 TP3",
            "Decode batch, #running-req: 2",
        ),
        (
            "(Worker_TP2 pid=411) ERROR 08-11 16:54:19 [base_worker.py:22] gone",
            (8, 11, 16, 54, 19),
            "TP2",
            "gone",
        ),
        (
            "2026-08-28T01:13:33.038912Z  INFO dynamo_llm::http: request received",
            (8, 28, 1, 13, 33),
            "",
            "request received",
        ),
        ("[05/07/2026-13:04:29] [TRT-LLM] [RANK 6] [W] Cancelled", (5, 7, 13, 4, 29), "RANK6", "Cancelled"),
        ("E0729 22:05:57.196910  2210 transfer.cpp:611] timeout", (7, 29, 22, 5, 57), "", "timeout"),
        ("[Thu Jul  2 04:11:27 2026] NVRM: Xid (PCI:0): 13", (7, 2, 4, 11, 27), "", "NVRM: Xid (PCI:0): 13"),
        (
            '{"level": "info", "ts": "2026-08-17T07:10:02Z", "msg": "Starting EPP"}',
            (8, 17, 7, 10, 2),
            "",
            None,
        ),
        ("09:55:00 server: listening", (8, 20, 9, 55, 0), "", "server: listening"),
        ("[1789070504.617878] [h:1 :0]  a.c:4  UCX  ERROR boom", (9, 10, 20, 1, 44), "", "UCX ERROR boom"),
    ],
)
def test_each_format_gives_time_rank_and_message(
    line: str, at: tuple[int, int, int, int, int], rank: str, message: str | None
) -> None:
    """The prefix of every engine family is understood."""
    [made], _ = parse_log(line.encode(), "a/log.txt", _NOW)
    assert made.at == datetime(2026, *at, tzinfo=UTC)
    assert made.rank == rank
    assert message is None or made.message == message


def test_a_line_without_a_time_has_that_of_the_line_before() -> None:
    """A traceback belongs to the moment of its first line."""
    data = b"[2026-06-19 11:17:31 TP0] boom\nTraceback (most recent call last):"
    lines, _ = parse_log(data, "a/log.txt", _NOW)
    assert lines[1].at == lines[0].at


def test_the_zone_of_the_printed_times_is_taken_off() -> None:
    """Times are UTC inside, whatever the host printed."""
    [line], _ = parse_log(b"[2026-06-19 11:17:31] x", "a/log.txt", _NOW, offset_min=120)
    assert line.at == datetime(2026, 6, 19, 9, 17, 31, tzinfo=UTC)


def test_colours_and_control_characters_are_gone() -> None:
    """What a terminal would show is what patterns are held against."""
    [line], _ = parse_log(b"\x1b[2m2026-08-28T01:13:33Z\x1b[0m \x1b[32m INFO\x1b[0m x::y: done\x00", "a/log.txt", _NOW)
    assert line.message == "done"


def test_the_rank_may_stand_in_the_file_name() -> None:
    """`log.TP3.txt` is rank TP3's."""
    [line], _ = parse_log(b"plain", "a/log.TP3.txt", _NOW)
    assert line.rank == "TP3"


def test_a_line_of_a_megabyte_is_cut() -> None:
    """One monstrous line costs a few kilobytes."""
    [line], _ = parse_log(b"x" * 1_000_000, "a/log.txt", _NOW)
    assert len(line.message) == loglines.MAX_LINE


def test_of_a_huge_log_the_end_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The beginning is left out, said so, and line numbers still fit the file."""
    monkeypatch.setattr(loglines, "MAX_BYTES", 20)
    lines, is_cut = parse_log(b"one line\ntwo line\nthree line\nfour line\n", "a/log.txt", _NOW)
    assert is_cut
    assert [(line.number, line.message) for line in lines] == [(4, "four line")]


@given(st.binary(max_size=600))
def test_any_bytes_are_read_without_an_exception(data: bytes) -> None:
    """Binary, half characters and nonsense times do no harm."""
    parse_log(data, "a/log.txt", _NOW)


@given(
    st.text(max_size=60),
    st.sampled_from(["[2026-13-45 99:99:99] ", "E1399 25:61:61.1 1 a.c:1] ", "[99999999999.1] [a] b UCX ERROR "]),
)
def test_impossible_times_are_no_times(text: str, prefix: str) -> None:
    """A prefix that looks like a time and is none leaves the line without one."""
    lines, _ = parse_log((prefix + text).encode(), "a/log.txt", _NOW)
    assert all(line.at is None for line in lines)
