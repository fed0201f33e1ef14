"""The live table of `pdctl watch`."""

from __future__ import annotations

import io
import json
from datetime import timedelta

import msgspec
import pytest
from rich.console import Console

from pdctl.render.watch import as_block, as_json_line, screen
from pdctl.watch.sight import InstanceSight
from tests.unit.pdctl.watch.samples import START
from tests.unit.pdctl.watch.test_exporter import SIGHT

BUSY = InstanceSight(
    name="decode-with-a-long-name-17",
    role="decode",
    state="ok",
    running=128.0,
    queues={"waiting": 1024.0},
    oldest_s=3723.0,
    requests_s=1234.5,
    tokens_s=123456.7,
    kv_mb_s=12345.6,
    failed=1234.0,
)


def drawn(width: int = 80, *, is_terminal: bool = False, **changes: object) -> str:
    """Return what is drawn of a sight."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=is_terminal, highlight=False, _environ={"TERM": "xterm"})
    console.print(as_block(msgspec.structs.replace(SIGHT, **changes)))
    return out.getvalue()


def test_the_largest_numbers_fit_eighty_columns() -> None:
    """No column is lost: the last one ends the row."""
    lines = drawn(instances=(BUSY,)).splitlines()
    assert max(len(line.rstrip()) for line in lines[:3]) <= 80
    assert lines[1].split()[-1] == "FAILED"
    assert lines[2].split()[1:] == ["ok", "128", "1024", "1h", "2m", "1234", "123457", "12346", "1234"]


def test_states_are_words_not_colours_alone() -> None:
    """Without colour everything is still said."""
    text = drawn()
    assert "\x1b" not in text
    assert "wedged" in text
    assert "stopped" in text
    assert "PD0305 silent_peer, d: stopped" in text
    assert "canary router: 503 in 0.2 s" in text


def test_unknown_is_a_dash() -> None:
    """Never a zero that nobody measured."""
    [row] = [line for line in drawn().splitlines() if line.startswith("d ")]
    assert row.split() == ["d", "stopped", "-", "-", "-", "-", "-", "-", "-"]


def test_a_verdict_tells_for_how_long_it_stands_once_confirmed() -> None:
    """Not before: the other verdict is still the confirmed one."""
    assert "wedged for" not in drawn()
    since = START - timedelta(seconds=72)
    assert "wedged for 1m 12s" in drawn(confirmed="wedged", confirmed_since=since)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_is_drawn_over_and_left_with_its_cursor(is_terminal: bool) -> None:
    """A pipe gets one table below the other, without control characters."""
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=is_terminal, _environ={"TERM": "xterm"})
    with pytest.raises(KeyboardInterrupt), screen(console) as show:
        show(SIGHT)
        show(SIGHT)
        raise KeyboardInterrupt
    text = out.getvalue()
    assert ("\x1b[?25l" in text, text.count("\x1b[?25h")) == (is_terminal, 1 if is_terminal else 0)
    assert ("\x1b[2K" in text) is is_terminal
    assert text.count("INSTANCE") >= 2


def test_json_is_one_line_a_sight() -> None:
    """With everything the table shows."""
    line = as_json_line(SIGHT)
    assert "\n" not in line
    assert json.loads(line)["instances"][1]["queues"] == {"waiting": 3.0, "inflight": 1.0}
