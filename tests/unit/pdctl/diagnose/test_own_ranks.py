"""A dead rank of our own engine is named, though its parent has buried it."""

from __future__ import annotations

import pytest

from tests.unit.pdctl.diagnose.incident import HEALTHY_GET, PROBE_TIMEOUT, instance, report
from tests.unit.pdctl.diagnose.test_own_engine import scrape

PREFILL = instance("p", "prefill", "pdctl", host=1, more="bootstrap_port = 8998")
ROUTER = instance("r", "router", "smg", host=3)


def processes(*ranks: int) -> str:
    """Return process.toml of an engine of which these ranks live."""
    rows = ['[[process]]\npid = 1\nppid = 0\ntitle = "python -m engine"\nstate = "S"\n']
    title = 'ppid = 1\ntitle = "python -m engine.scheduler"\nstate = "S"'
    rows += [f'[[process]]\npid = {2 + rank}\n{title}\nrank = "TP{rank}"\n' for rank in ranks]
    return "\n".join(rows)


def is_named(tp: int, *ranks: int) -> bool:
    """Return whether a decode of `tp` ranks, of which these live, is called a zombie for sure."""
    topology = PREFILL + instance("d", "decode", "pdctl", host=2, tp=tp) + ROUTER
    said = report(
        topology,
        p__http_toml=HEALTHY_GET,
        d__http_toml=HEALTHY_GET,
        d__process_toml=processes(*ranks),
        probe_toml=PROBE_TIMEOUT,
    )
    found = [cause for cause in said.causes if cause.code == "PD0103" and cause.confidence == "established"]
    return [cause.subject.instance for cause in found] == ["d"]


@pytest.mark.parametrize(("tp", "ranks"), [(2, (0,)), (2, (1,)), (4, (0, 1, 3))])
def test_a_rank_that_is_not_there_is_named(tp: int, ranks: tuple[int, ...]) -> None:
    """/health answers 200 and requests hang."""
    assert is_named(tp, *ranks)


def test_reads_that_wait_for_a_rank_that_is_gone_do_not_hide_it() -> None:
    """Pages of aborted transfers fence as with a stuck handle: that follows from the dead rank, which comes first."""
    scrapes = {"d__metrics_txt": scrape({"fencing": 3}), "d__metrics_prev_txt": scrape({"fencing": 3})}
    said = report(
        PREFILL + instance("d", "decode", "pdctl", host=2, tp=2) + ROUTER,
        p__http_toml=HEALTHY_GET,
        d__http_toml=HEALTHY_GET,
        d__process_toml=processes(0),
        probe_toml=PROBE_TIMEOUT,
        **scrapes,
    )
    assert said.firm[0].code == "PD0103"
    assert "PD0304" in [cause.code for cause in said.firm]


@pytest.mark.parametrize(("tp", "ranks"), [(1, (0,)), (2, (0, 1))])
def test_with_all_ranks_there_it_is_something_else(tp: int, ranks: tuple[int, ...]) -> None:
    """Requests hang all the same."""
    assert not is_named(tp, *ranks)
