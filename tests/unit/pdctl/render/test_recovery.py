"""What an operator is shown and asked before a restart, and what the history says."""

from __future__ import annotations

import io

import msgspec
import pytest

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.recover.drift import Drift
from pdctl.recover.gates import Decision, Ruling
from pdctl.recover.ledger import Entry, InstanceState, Outcome, PhaseTime, Recovery, Step, Summary
from pdctl.recover.proposal import Choice, Proposal
from pdctl.recover.restart_set import Joined, RestartSet
from pdctl.render.recovery import ask, history_lines, proposal_lines

DEPLOYMENT = Deployment(name="prod", model="m", instances=(
    Instance(name="prefill-0", role=Role.PREFILL, dialect="sglang", url="http://127.0.0.1:1"),
    Instance(name="decode-0", role=Role.DECODE, dialect="sglang", url="http://127.0.0.1:2"),
    Instance(name="router", role=Role.ROUTER, dialect="smg", url="http://127.0.0.1:3"),
))  # fmt: skip
PROPOSAL = Proposal(
    deployment=DEPLOYMENT,
    chosen=RestartSet(("prefill-0", "decode-0"), (Joined("prefill-0", "it may not survive"),)),
    decision=Decision(Ruling.ASK, "the verdict is wedged"),
    before=(
        InstanceState(name="prefill-0", process="running", health="ok", running=2, waiting=3),
        InstanceState(name="decode-0", process="running", health="ok", running=4, waiting=0),
        InstanceState(name="router", process="running", health="ok"),
    ),
    drift=(Drift("decode-0", "code: engine: loop.py changed"),),
    predicted_s=12.0,
    drain_s=5.0,
    snapshot_s=10.0,
)


def test_proposal_names_set_losses_what_stays_outage_and_drift() -> None:
    """Everything that a person needs to say yes or no."""
    assert proposal_lines(PROPOSAL) == (
        "deployment  prod on local",
        "restart     prefill-0, decode-0   (the verdict is wedged)",
        "            prefill-0 joins: it may not survive",
        "lost        9 requests in flight; prefix caches and KV memory of prefill-0, decode-0",
        "stays       router",
        "outage      about 12 s; before that at most 5 s for requests in flight",
        "would also deploy   decode-0: code: engine: loop.py changed",
    )


def test_proposal_says_what_is_tried_before_the_restart() -> None:
    """So that nobody is surprised by requests that end, or by engines that were not restarted."""
    lines = proposal_lines(msgspec.structs.replace(PROPOSAL, abort_first=("prefill-0", "decode-0")))
    assert "first       end every request of prefill-0, decode-0; if that helps, nothing is restarted" in lines


@pytest.mark.parametrize(("typed", "choice"), [
    ("s\n", Choice.SNAPSHOT),
    ("r\n", Choice.RESTART),
    ("q\n", Choice.QUIT),
    ("", Choice.QUIT),
    ("\nwhat?\nR\n", Choice.RESTART),
])  # fmt: skip
def test_answers(monkeypatch: pytest.MonkeyPatch, typed: str, choice: Choice) -> None:
    """Three answers; end of input is no, anything else is asked again."""
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert ask(PROPOSAL) is choice


@pytest.mark.parametrize(("typed", "choice"), [
    ("r\nprod\n", Choice.RESTART),
    ("r\nprd\n", Choice.QUIT),
    ("r\n", Choice.QUIT),
    ("q\n", Choice.QUIT),
])  # fmt: skip
def test_other_hosts_want_the_deployments_name(monkeypatch: pytest.MonkeyPatch, typed: str, choice: Choice) -> None:
    """A wrong name is no; who quits is not asked for one."""
    far = tuple(msgspec.structs.replace(item, host="ssh:gpu7") for item in DEPLOYMENT.instances)
    proposal = msgspec.structs.replace(PROPOSAL, deployment=msgspec.structs.replace(DEPLOYMENT, instances=far))
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert ask(proposal) is choice


def test_snapshot_is_offered_with_its_price_only_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A planned restart takes none: `s` is not an answer then."""
    monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
    ask(PROPOSAL)
    assert "[s] snapshot and restart (+10 s)   [r] restart now   [q] quit" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("s\nq\n"))
    assert ask(msgspec.structs.replace(PROPOSAL, snapshot_s=None)) is Choice.QUIT


def test_history_shows_who_why_phases_and_before_and_after() -> None:
    """A finished one; and of a half-done one its last step."""
    state = InstanceState(name="decode-0", process="killed by SIGKILL", health="refused")
    well = InstanceState(name="decode-0", process="running", health="ok")
    summary = Summary(
        command="pdctl snapshot-and-restart", targets=("decode-0",), cause="PD0101 process-gone", before=(state,)
    )
    planned = Entry(recovery="r1", at=0.0, step=Step.PLANNED, by="ann@gpu1 pid 7", summary=summary)
    ended = Entry(
        recovery="r1", at=21.5, step=Step.ENDED, by="ann", outcome=Outcome.RECOVERED, after=(well,),
        phases=(PhaseTime("stop", 1.0), PhaseTime("verify", 3.25)),
    )  # fmt: skip
    half = Entry(recovery="r2", at=99.0, step=Step.STARTING, by="bob", instance="decode-0")
    lines = history_lines((Recovery("r1", (planned, ended)), Recovery("r2", (half,))))
    assert "r2  half done, last step: starting decode-0" in lines[0]
    assert lines[2].endswith("r1  recovered  (21.5 s)  by ann@gpu1 pid 7")
    assert lines[3] == "    pdctl snapshot-and-restart decode-0: PD0101 process-gone"
    assert lines[4] == "    stop 1.0 s, verify 3.2 s"
    assert lines[5] == "    decode-0: killed by SIGKILL, refused -> running, ok"
