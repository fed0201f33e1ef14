"""Prometheus text -> samples."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pdctl.evidence.exposition import parse_exposition

_TEXT = b"""# HELP sglang:num_running_reqs running
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{tp_rank="0",model_name="m \\"x\\""} 3.0
sglang:lat_bucket{le="1"} 7
sglang_num_queue_reqs 4 1700000000
"""


def test_samples_keep_labels_and_values() -> None:
    """A sample is its name, its labels and its value; timestamps and comments are passed over."""
    made, problems = parse_exposition(_TEXT, "p/metrics.txt")
    assert made is not None
    assert problems == ()
    [sample] = made.series["sglang:num_running_reqs"]
    assert sample.value == 3.0
    assert sample.labels["tp_rank"] == "0"


def test_an_escaped_colon_is_the_same_name() -> None:
    """What an OpenMetrics scraper calls `sglang_x` is `sglang:x`."""
    made, _ = parse_exposition(_TEXT, "p/metrics.txt")
    assert made is not None
    assert made.series["sglang:num_queue_reqs"][0].value == 4.0


def test_histogram_buckets_are_left_out() -> None:
    """No analyzer reads buckets, and they are most of a scrape."""
    made, _ = parse_exposition(_TEXT, "p/metrics.txt")
    assert made is not None
    assert not any("bucket" in name for name in made.series)


def test_html_is_said_to_be_html() -> None:
    """A login page in place of metrics is one clear problem and no samples."""
    made, [problem] = parse_exposition(b"\n<!DOCTYPE html><html>", "p/metrics.txt")
    assert made is None
    assert "HTML" in problem.message


def test_a_truncated_scrape_keeps_what_came() -> None:
    """The whole lines count; the broken one is named by its number."""
    made, [problem] = parse_exposition(b'a_total 1\nb_total{x="', "p/metrics.txt")
    assert made is not None
    assert made.series["a_total"][0].value == 1.0
    assert problem.place.line == 2


@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_an_exception(data: bytes) -> None:
    """Whatever answers on a metrics port, the parser returns."""
    parse_exposition(data, "p/metrics.txt")


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}_total", fullmatch=True), st.floats(0, 1e12), min_size=1, max_size=9))
def test_every_written_sample_is_read_back(samples: dict[str, float]) -> None:
    """Reading what was written gives the same numbers."""
    text = "".join(f"{name} {value!r}\n" for name, value in samples.items())
    made, problems = parse_exposition(text.encode(), "p/metrics.txt")
    assert made is not None
    assert problems == ()
    assert {name: rows[0].value for name, rows in made.series.items()} == samples
