"""When all requests are ended before anything is restarted, and whether that helped."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.diagnose.report import Cause
from pdctl.recover.gates import PROGRESS_S
from pdctl.recover.ledger import Entry, Recovery, Step, Summary
from pdctl.recover.mild import abort_all, acting_causes, engines_to_clear, has_helped
from tests.fakes.engine_pair import fake_pair
from tests.fakes.http_server import Reply
from tests.unit.pdctl.recover.test_restart_set import cause, deployed, report

NOW = 10_000.0
STARVED = cause("PD0402", "decode-0")
DECODE_AND_PEERS = ("prefill-0", "prefill-1", "decode-0")


def earlier(*steps: Step, fingerprint: str = "PD0402", ended_at: float = NOW - 60) -> Recovery:
    """Return a recovery that took some steps."""
    summary = Summary(command="c", targets=("decode-0",), fingerprint=fingerprint)
    entries = [
        Entry(recovery="r", at=ended_at, step=step, by="x", summary=summary if step is Step.PLANNED else None)
        for step in (Step.PLANNED, *steps, Step.ENDED)
    ]
    return Recovery("r", tuple(entries))


@pytest.mark.parametrize(("causes", "names"), [
    ((STARVED,), DECODE_AND_PEERS),
    ((cause("PD0405", "prefill-1"),), ("prefill-1", "decode-0", "decode-1")),
    ((STARVED, cause("PD0405", "decode-0")), DECODE_AND_PEERS),
    ((STARVED, cause("PD0301", "prefill-0")), ()),
    ((cause("PD0301", "prefill-0"),), ()),
    ((cause("PD0305", "prefill-0"), cause("PD0402", "decode-0", causal_role="cascade")), ()),
    ((cause("PD0402", "decode-0", confidence="hypothesis"),), ()),
    ((), ()),
])  # fmt: skip
def test_requests_are_ended_first_where_they_are_all_that_is_wrong(
    causes: tuple[Cause, ...], names: tuple[str, ...]
) -> None:
    """On the engine that the cause names and on its peers; not where another cause needs a restart anyway."""
    assert engines_to_clear(deployed("pdctl"), report(*causes), (), NOW) == names


@pytest.mark.parametrize(("dialect", "version"), [("sglang", "0.5.14"), ("sglang", None), ("homegrown", None)])
def test_an_engine_that_may_not_survive_aborts_is_restarted_at_once(dialect: str, version: str | None) -> None:
    """Unknown counts as no: on SGLang 0.5.13 to 0.5.15 one abort is the wedge itself."""
    assert engines_to_clear(deployed(dialect, version), report(STARVED), (), NOW) == ()


def test_without_a_diagnosis_nothing_is_ended_first() -> None:
    """A planned restart."""
    assert engines_to_clear(deployed("pdctl"), None, (), NOW) == ()


@pytest.mark.parametrize(("before", "is_offered"), [
    (earlier(Step.ABORTING), False),
    (earlier(Step.ABORTING, Step.STOPPING), False),
    (earlier(Step.STOPPING), True),
    (earlier(Step.ABORTING, fingerprint="other"), True),
    (earlier(Step.ABORTING, ended_at=NOW - PROGRESS_S - 1), True),
])  # fmt: skip
def test_what_was_tried_a_moment_ago_is_not_tried_again(before: Recovery, is_offered: bool) -> None:
    """The same cause came back: the restart is next."""
    assert bool(engines_to_clear(deployed("pdctl"), report(STARVED), (before,), NOW)) is is_offered


def test_a_cause_that_calls_for_aborts_alone_is_one_to_act_on() -> None:
    """Behind those that call for a restart, so that the ledger names what was acted on."""
    causes = (cause("PD0405", "decode-0"), cause("PD0301", "prefill-0"), cause("PD0901", "decode-0"))
    assert [one.code for one in acting_causes(report(*causes))] == ["PD0301", "PD0405"]


def test_every_engine_is_asked_to_end_all_and_a_refusal_is_told(tmp_path: Path) -> None:
    """One that wants a key ends nothing; the others are asked all the same."""
    said: list[str] = []
    with fake_pair() as pair:
        pair.prefill.routes["/abort_request"] = Reply({}, 401)
        pair.decode.routes["/abort_request"] = Reply({})
        engines = [one for one in pair.deployment().instances if one.role != "router"]
        abort_all(engines, said.append)
        asked = [item.json() for item in pair.decode.requests if item.path == "/abort_request"]
    assert asked == [{"abort_all": True}]
    assert said[1] == "decode-0: requests ended"
    assert said[0].startswith("prefill-0: not aborted: POST http")
    assert said[0].endswith("HTTP 401")


@pytest.mark.parametrize(("gaps", "helped"), [([0.0, 0.0, 0.0], True), ([0.0, 3.0, 0.0], False)])
def test_it_helped_when_a_request_passes_on_every_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gaps: list[float], helped: bool
) -> None:
    """Wrong tokens are no help."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with fake_pair(gaps=gaps) as pair:
        assert has_helped(pair.deployment(), ["decode-0"], lambda line: None) is helped
