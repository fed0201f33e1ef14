"""What a flight recorder and a kept history tell of the time before the capture."""

from __future__ import annotations

import json

from pdctl.evidence.flight_format import pack_header, pack_record
from pdctl.evidence.traces import marks, traces

_STEP_BEGIN, _STEP_END, _ROOM, _NOTE = 2, 3, 4, 5
_START = 1_781_000_000.0


def recorder(*records: tuple[int, int, str]) -> bytes:
    """Return a recorder's file; record n is written n seconds after the start: (kind, subject, text)."""
    data = pack_header(64, 4711, _START, 0, "d", "ab12")
    for number, (kind, subject, text) in enumerate(records):
        data += pack_record(number, _START + number, kind, 3, subject, 0, text)
    return data


def test_a_step_that_never_ended_is_told() -> None:
    """That is where a hung loop stands, whatever its log says."""
    found, problems = marks(recorder((_STEP_BEGIN, 8, ""), (_STEP_END, 8, ""), (_STEP_BEGIN, 9, "")), "d/flight.bin")
    assert problems == ()
    assert [(mark.kind, mark.at.timestamp() - _START) for mark in found] == [
        ("start", 0.0),
        ("step_end", 1.0),
        ("step_open", 2.0),
    ]
    assert "step 9 of 3 sequences began, and had not ended" in found[-1].text


def test_rooms_that_fail_and_notes_are_told_and_others_are_not() -> None:
    """A room that lands is nobody's trouble; one that had failed already fails once."""
    found, _ = marks(
        recorder(
            (_ROOM, 1, "decode reading>failed PEER_GONE rid-1"),
            (_ROOM, 1, "decode failed>failed ACK rid-1"),
            (_ROOM, 2, "decode reading>landed COMMITTED rid-2"),
            (_NOTE, 0, "stopping"),
        ),
        "d/flight.bin",
    )
    assert [(mark.kind, mark.text) for mark in found[1:]] == [
        ("room_failed", "decode room failed: PEER_GONE"),
        ("note", "stopping"),
    ]


def test_a_file_that_is_no_recorder_is_one_problem() -> None:
    """An HTML error page, or half a header."""
    found, (problem,) = marks(b"<html>", "d/flight.bin")
    assert found == ()
    assert str(problem.place) == "d/flight.bin"


def test_series_of_one_name_are_summed_and_gaps_left_out() -> None:
    """Two ranks of a counter; Prometheus writes NaN for a point it does not have."""
    series = [
        {"metric": {"__name__": "sglang_num_requests_total", "rank": rank}, "values": [[10, "1"], [20, value]]}
        for rank, value in (("0", "5"), ("1", "NaN"))
    ]
    (trace,), problems = traces(json.dumps({"series": series}).encode(), "d/history.json")
    assert [(at.timestamp(), value) for at, value in trace.points] == [(10.0, 2.0), (20.0, 5.0)]
    assert problems == ()


def test_a_broken_history_is_one_problem() -> None:
    """Cut in the middle."""
    found, problems = traces(b'{"series": [', "d/history.json")
    assert (found, len(problems)) == ((), 1)
