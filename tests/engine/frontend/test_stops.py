"""Stop strings in text that comes in pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.frontend.stops import StopMatcher


def fed(stops: list[str], *pieces: str) -> tuple[list[str], str | None]:
    """Return what each piece shows, the flush last, and what matched."""
    matcher = StopMatcher(stops)
    shown = [matcher.push(piece) for piece in pieces]
    return [*shown, matcher.flush()], matcher.matched


def test_text_without_stops_passes_at_once() -> None:
    """Nothing is held back when there is nothing to look for."""
    assert fed([], "ab", "c") == (["ab", "c", ""], None)


def test_possible_beginning_is_held_back() -> None:
    """The end of the text that may begin a stop string is shown only once it does not."""
    assert fed(["xyz"], "ax", "y", "b") == (["a", "", "xyb", ""], None)


def test_held_back_text_is_shown_at_the_end() -> None:
    """An answer that ends in half a stop string is whole."""
    assert fed(["xyz"], "axy") == (["a", "xy"], None)


def test_match_across_pieces_cuts() -> None:
    """Neither the stop string nor what follows is shown."""
    assert fed(["xyz"], "ax", "y", "zb", "c") == (["a", "", "", "", ""], "xyz")


def test_first_to_end_wins() -> None:
    """Of overlapping stop strings the one that is complete first counts, the longer one of two that end together."""
    assert fed(["abcd", "bc"], "xabcd") == (["xa", ""], "bc")
    assert fed(["c", "bc"], "abc") == (["a", ""], "bc")


@given(
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=4),
    st.lists(st.text("abc", max_size=5), max_size=8),
)
def test_pieces_do_not_matter(stops: list[str], pieces: list[str]) -> None:
    """However a text is cut, the same is shown, and it is what a search of the whole text gives."""
    text = "".join(pieces)
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    expected = text[: min(ends)[1]] if ends else text
    shown, matched = fed(stops, *pieces)
    assert "".join(shown) == expected
    assert (matched is not None) == bool(ends)
