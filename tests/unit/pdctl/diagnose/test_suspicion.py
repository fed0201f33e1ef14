"""Whether a suspected cause is it, with what decides."""

from __future__ import annotations

import pytest

from pdctl.diagnose.catalogue import CATALOGUE
from pdctl.diagnose.diagnosis import diagnose
from pdctl.diagnose.focus import Focus
from pdctl.diagnose.report import Report, Suspicion
from tests.unit.pdctl.diagnose import incident as make

_IDLE = "recv_pyobj@zmq/sugar/socket.py < recv_requests < event_loop"


def _ask(*codes: str, threads: tuple[str, ...] = (), **files: str) -> Report:
    stacks = {"p__stacks_txt": make.stack(10, "sglang::scheduler", _IDLE, *threads)} if threads else {}
    case = make.evidence(make.PAIR, **make.stalled_pair(), **stacks, **files)
    return diagnose(case, focus=Focus(suspects=codes))


def _one(report: Report) -> Suspicion:
    (row,) = report.suspicions
    return row


def test_the_cause_itself_is_confirmed_with_its_proof() -> None:
    """The observation is the one that proves it, with its place."""
    row = _one(_ask("PD0301", threads=("transfer_worker", "transfer_worker")))
    assert (row.answer, row.instance) == ("yes", "p")
    assert row.observation is not None
    assert (row.observation.weight, row.observation.source.file) == ("proves", "p/stacks.txt")


def test_a_refuted_cause_comes_with_the_number_that_refutes_it() -> None:
    """Every dump shows the thread."""
    row = _one(_ask("PD0301", threads=("bootstrap_thread", "transfer_worker", "transfer_worker")))
    assert row.answer == "no"
    assert "all 1 schedulers of p have a bootstrap_thread" in row.text
    assert row.observation is not None
    assert row.observation.weight == "refutes"


def test_what_could_not_be_checked_says_what_is_missing() -> None:
    """Nobody took the log that a watchdog would have written to."""
    row = _one(_ask("PD0602"))
    assert (row.answer, row.observation) == ("not_checked", None)
    assert row.text == "no complete log of p"


def test_what_fits_without_proof_is_possible() -> None:
    """The queues speak for it; stacks would prove it."""
    row = _one(_ask("PD0301"))
    assert row.answer == "possible"
    assert "40 rooms wait on d" in row.text
    assert "not proven" in row.text


def test_a_consequence_is_told_as_one() -> None:
    """An engine that dies of a GPU fault again and again is in a restart loop because of the fault."""
    process = '[[process]]\npid = 5\ntitle = "sglang::scheduler"\nstate = "S"\nrestarts = 5\n'
    process += "started_at = 2026-06-19T14:25:00Z\n"
    case = make.evidence(make.PAIR, p__process_toml=process, p__gpu_toml="[[gpu]]\nindex = 0\nxid = [79]\n")
    rows = {row.code: row for row in diagnose(case, focus=Focus(suspects=("PD0701", "PD0102"))).suspicions}
    assert (rows["PD0701"].answer, rows["PD0102"].answer) == ("yes", "follows")
    assert "PD0701" in rows["PD0102"].text


def test_every_code_has_an_answer_even_where_nothing_is_known() -> None:
    """None is left out, and none is confirmed by silence."""
    codes = tuple(item.code for item in CATALOGUE)
    report = diagnose(make.evidence(make.PAIR), focus=Focus(suspects=codes))
    assert {row.code for row in report.suspicions} == set(codes)
    assert not {row.answer for row in report.suspicions} & {"yes", "follows"}
    assert all(row.text for row in report.suspicions)


@pytest.mark.parametrize("order", [("PD0301", "PD0101"), ("PD0101", "PD0301")])
def test_what_it_is_comes_before_what_it_is_not(order: tuple[str, str]) -> None:
    """However the suspicions were given."""
    report = _ask(*order, threads=("transfer_worker", "transfer_worker"))
    assert report.suspicions[0].answer == "yes"
