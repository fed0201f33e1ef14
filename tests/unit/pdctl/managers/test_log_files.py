"""Reading and following log files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.managers import log_files


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """An empty log."""
    path = tmp_path / "i.log"
    path.touch()
    return path


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def rotate(path: Path) -> None:
    """What the shim does: copy, truncate, then name the copy."""
    draft = path.with_name("draft")
    draft.write_bytes(path.read_bytes())
    os.truncate(path, 0)
    draft.replace(log_files.rotated(path))


def new_lines(follower: log_files.Follower) -> list[str]:
    return [line.text for line in follower.poll()]


@given(
    lines=st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), max_size=40)),
    count=st.integers(0, 30),
    block=st.integers(1, 50),
)
def test_last_lines_are_the_end_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], count: int, block: int
) -> None:
    """For any text and any size of the blocks it is read in."""
    path = tmp_path_factory.mktemp("log") / "i.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_files, "BLOCK_BYTES", block)
        assert log_files.last_lines(path, count) == (lines[-count:] if count else [])


def test_last_lines_reach_into_the_rotated_file(log: Path) -> None:
    """Just rotated, a log still shows what came before."""
    append(log, "1\n2\n3\n")
    rotate(log)
    append(log, "4\n")
    assert log_files.last_lines(log, 3) == ["2", "3", "4"]


def test_lines_of_earlier_runs_are_left_out(log: Path) -> None:
    """Only what came after the file had a size; all of it, if the log was rotated since."""
    append(log, "old\n")
    size = log.stat().st_size
    assert log_files.last_lines(log, 9, after_byte=size) == []
    append(log, "new\nnewer\n")
    assert log_files.last_lines(log, 9, after_byte=size) == ["new", "newer"]
    rotate(log)
    append(log, "n\n")
    assert log_files.last_lines(log, 1, after_byte=size) == ["n"]


def test_colours_are_left_out(log: Path) -> None:
    """They hide the time stamp from the merge, and a pipe wants none."""
    append(log, "\x1b[2m2026-11-29 10:00:02\x1b[0m \x1b[32m INFO\x1b[0m smg: two\n")
    plain = log.with_name("plain.log")
    append(plain, "2026-11-29 10:00:01,500 one\n2026-11-29 10:00:03,000 three\n")
    assert [line.text for line in log_files.merged({"router": log, "engine": plain}, 9)] == [
        "2026-11-29 10:00:01,500 one",
        "2026-11-29 10:00:02  INFO smg: two",
        "2026-11-29 10:00:03,000 three",
    ]


def test_absent_log_has_no_lines(tmp_path: Path) -> None:
    """An instance that never ran is no error."""
    assert log_files.last_lines(tmp_path / "none.log", 5) == []


def test_logs_are_merged_by_time(tmp_path: Path) -> None:
    """Both engines' and smg's stamps count; a traceback stays behind its line."""
    prefill, decode = tmp_path / "p.log", tmp_path / "d.log"
    prefill.write_text("2026-11-29 10:00:01,500 one\nTraceback\n2026-11-29 10:00:04,000 four\n")
    decode.write_text("2026-11-29T10:00:00.250Z zero\n[2026-11-29 10:00:03] three\n")
    merged = log_files.merged({"p": prefill, "d": decode}, 10)
    assert [(line.instance, line.text.split()[-1]) for line in merged] == [
        ("d", "zero"),
        ("p", "one"),
        ("p", "Traceback"),
        ("d", "three"),
        ("p", "four"),
    ]


def test_follower_begins_at_the_end(log: Path) -> None:
    """What was there before is not repeated; a line is given once it is complete."""
    append(log, "old\n")
    follower = log_files.Follower("i", log)
    append(log, "half")
    assert new_lines(follower) == []
    append(log, " a line\nnext\n")
    assert new_lines(follower) == ["half a line", "next"]
    assert new_lines(follower) == []


def test_follower_loses_nothing_when_the_log_rotates(log: Path) -> None:
    """Unread lines are taken from the rotated file, then the new ones from the emptied log."""
    follower = log_files.Follower("i", log)
    append(log, "1\n")
    assert new_lines(follower) == ["1"]
    append(log, "2\n3")
    rotate(log)
    append(log, "4\n")
    assert new_lines(follower) == ["2", "34"]


def test_follower_waits_while_the_log_is_truncated_and_the_copy_not_named_yet(log: Path) -> None:
    """In that moment it must neither skip nor repeat."""
    append(log, "1\n")
    follower = log_files.Follower("i", log)
    append(log, "2\n")
    draft = log.with_name("draft")
    draft.write_bytes(log.read_bytes())
    os.truncate(log, 0)
    assert new_lines(follower) == []
    draft.replace(log_files.rotated(log))
    append(log, "3\n")
    assert new_lines(follower) == ["2", "3"]


def test_follower_goes_on_after_a_person_truncated_the_log(log: Path) -> None:
    """No copy will come; from the second look on it reads from the start."""
    append(log, "many old lines\n")
    follower = log_files.Follower("i", log)
    log.write_text("new\n")
    assert new_lines(follower) == []
    assert new_lines(follower) == ["new"]


def test_follower_waits_for_a_log_that_is_not_there_yet(tmp_path: Path) -> None:
    """`logs -f` may be called before `up`."""
    follower = log_files.Follower("i", tmp_path / "i.log")
    assert new_lines(follower) == []
    append(tmp_path / "i.log", "first\n")
    assert new_lines(follower) == ["first"]


def test_line_without_end_is_passed_on_in_pieces(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that never ends its line cannot fill our memory."""
    monkeypatch.setattr(log_files, "BLOCK_BYTES", 8)
    monkeypatch.setattr(log_files, "PARTIAL_MOST_BYTES", 10)
    follower = log_files.Follower("i", log)
    append(log, "x" * 20)
    assert "".join(new_lines(follower)) == "x" * 16
