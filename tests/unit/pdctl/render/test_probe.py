"""How a probe's report looks."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from pdctl.probe.report import Output, ProbeReport, ProbeResult, Stage, StageTime, Verdict
from pdctl.render.probe import print_probe, probe_json, size_words

STAGES = (
    StageTime(stage=Stage.ROUTER_ACCEPTED, at_ms=2.0, took_ms=2.0),
    StageTime(stage=Stage.PREFILL_COMPUTED, at_ms=102.0, took_ms=100.0),
    StageTime(stage=Stage.KV_LANDED, at_ms=152.0, took_ms=50.0),
)


def result(verdict: Verdict = Verdict.PROVEN, **more: object) -> ProbeResult:
    fields: dict[str, object] = {
        "id": "pdctl-probe-1",
        "via": "router",
        "pair": ("prefill-0", "decode-0"),
        "at": 1.0,
        "verdict": verdict,
        "why": "all 8 tokens within 0.001 of the model's choice",
        "stage": Stage.KV_LANDED,
        "took_ms": 200.0,
        "timeout_ms": 60000.0,
        "output": Output.SAME,
        "stages": STAGES,
        "prompt_tokens": 128,
        "kv_bytes": 2_949_120,
        "kv_gb_s": 1.5,
        "text": "x",
    }
    return ProbeResult(**(fields | more))  # type: ignore[arg-type]


def printed(*results: ProbeResult, notes: tuple[str, ...] = (), **console: object) -> str:
    out = io.StringIO()
    report = ProbeReport(deployment="demo", results=results, notes=notes)
    print_probe(report, Console(file=out, **console))  # type: ignore[arg-type]
    return out.getvalue()


def test_verdict_stands_first_and_last() -> None:
    """A tired reader sees the verdict without searching."""
    lines = printed(result()).splitlines()
    assert lines[0] == "ok  router (prefill-0 -> decode-0): proven"
    assert lines[-1] == "proven: 1 of 1 requests on demo"


def test_bars_are_proportional() -> None:
    """The longest stage has the longest bar, and half the time half of it."""
    lengths = {line.strip().split("  ")[0]: line.count("█") for line in printed(result()).splitlines() if "█" in line}
    assert lengths == {"router accepted": 1, "prefill computed": 24, "KV landed": 12}


def test_failure_says_stage_reason_and_rooms() -> None:
    """A failed probe names the last stage, what was said, and what the engines tell of it now."""
    failed = result(
        Verdict.NOT_PROVEN,
        why="decode-0: HTTP 502: peer_gone",
        stage=Stage.PAIRED,
        text=None,
        output=Output.UNCHECKED,
        live=("prefill-0: room paired for 8.0 s, not ended",),
        held_by=(4711,),
    )
    text = printed(failed)
    assert "FAIL  router" in text
    for words in ("last stage reached: paired", "peer_gone", "room paired for 8.0 s", "process 4711"):
        assert words in text


@pytest.mark.parametrize("count", [1, 6])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_never_wider_than_80_columns(count: int, width: int) -> None:
    """A line fits the terminal, and 80 columns in a wide one."""
    long = result(why="word " * 60)
    lines = printed(*[long] * count, notes=("note " * 40,), width=width).splitlines()
    assert max(len(line) for line in lines) <= min(width, 80)


def test_many_requests_get_a_line_each_and_failures_in_full() -> None:
    """Above four requests the table is short, but what failed is shown whole."""
    text = printed(*[result()] * 5, result(Verdict.NOT_PROVEN, why="it broke"))
    assert sum(line.split()[:2] == ["ok", "router"] for line in text.splitlines()) == 5
    assert text.count("it broke") == 1
    assert text.splitlines()[-2].startswith("next: pdctl status")
    assert text.splitlines()[-1] == "not proven: 5 of 6 requests on demo"


def test_colour_only_repeats_the_words() -> None:
    """Without colour nothing is lost, and no escape sequence is printed."""
    plain = printed(result(Verdict.UNKNOWN), no_color=True, force_terminal=False)
    assert "could not tell" in plain
    assert "\x1b" not in plain


def test_markup_in_an_engines_words_is_text() -> None:
    """Square brackets that an engine wrote are shown as they are."""
    text = printed(result(Verdict.NOT_PROVEN, why="[red]boom[/red] [/x]", text=None))
    assert "[red]boom[/red] [/x]" in text


def test_json_has_all_fields_and_the_exit_code() -> None:
    """Programs read names of probe.toml, and the code that the process exits with."""
    content = json.loads(probe_json(ProbeReport(deployment="demo", results=(result(Verdict.UNKNOWN),))))
    assert (content["schema"], content["verdict"], content["exit_code"]) == ("pdctl.probe/1", "unknown", 3)
    assert content["results"][0]["kv_bytes"] == 2_949_120
    assert content["results"][0]["stages"][1] == {"stage": "prefill_computed", "at_ms": 102.0, "took_ms": 100.0}


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([], 3),
        ([Verdict.PROVEN], 0),
        ([Verdict.PROVEN, Verdict.UNKNOWN], 3),
        ([Verdict.UNKNOWN, Verdict.NOT_PROVEN, Verdict.PROVEN], 1),
    ],
)
def test_worst_request_decides(verdicts: list[Verdict], code: int) -> None:
    """One request that failed makes the run fail; nothing sent proves nothing."""
    report = ProbeReport(deployment="demo", results=tuple(result(verdict) for verdict in verdicts))
    assert report.exit_code == code


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 B"), (999, "999 B"), (24_576, "24.6 kB"), (2_949_120, "2.95 MB"), (123_000_000, "123 MB")],
)
def test_sizes(size: int, words: str) -> None:
    """Sizes are decimal, with three digits."""
    assert size_words(size) == words
