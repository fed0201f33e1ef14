"""Folded stacks: where ranks stand together, and where they part."""

from __future__ import annotations

from pdctl.diagnose.rank_trie import rank_rows
from pdctl.render.report_table import as_table
from tests.unit.pdctl.diagnose import incident as make

_LOOP = "event_loop_overlap < dispatch_event_loop"


def _stacks(*mains: str) -> str:
    return "".join(make.stack(10 * rank + 1, f"sglang::scheduler_TP{rank}", main) for rank, main in enumerate(mains))


def test_ranks_part_below_what_they_share() -> None:
    """The shared functions once, then each way on, the widest first."""
    parted = _stacks(f"all_reduce < poll < {_LOOP}", *[f"broadcast < recv_requests < {_LOOP}"] * 2)
    evidence = make.evidence(make.instance("e", "unified", tp=3), e__stacks_txt=parted)
    rows = [(row.depth, row.path, row.ranks) for row in rank_rows("e", evidence.instances[0].stacks)]
    assert rows == [
        (0, ("dispatch_event_loop", "event_loop_overlap"), ("TP0", "TP1", "TP2")),
        (1, ("recv_requests", "broadcast"), ("TP1", "TP2")),
        (1, ("poll", "all_reduce"), ("TP0",)),
    ]


def test_ranks_that_stand_together_are_one_row() -> None:
    """However many."""
    together = _stacks(*[f"recv_requests < {_LOOP}"] * 4)
    evidence = make.evidence(make.instance("e", "unified", tp=4), e__stacks_txt=together)
    (row,) = rank_rows("e", evidence.instances[0].stacks)
    assert (row.path[-1], len(row.ranks)) == ("recv_requests", 4)


def test_one_rank_in_the_loop_itself_is_no_way_on() -> None:
    """The other went deeper; the first stays counted above."""
    evidence = make.evidence(
        make.instance("e", "unified", tp=2), e__stacks_txt=_stacks(_LOOP, f"recv_requests < {_LOOP}")
    )
    rows = [(row.depth, row.ranks) for row in rank_rows("e", evidence.instances[0].stacks)]
    assert rows == [(0, ("TP0", "TP1")), (1, ("TP1",))]


def test_the_verbose_screen_shows_the_trie_and_the_time_line() -> None:
    """With -v only: the first screen has no room."""
    files = {"e__stacks_txt": _stacks(f"all_reduce < poll < {_LOOP}", f"broadcast < recv_requests < {_LOOP}")}
    report = make.report(make.instance("e", "unified", tp=2), **files)
    verbose = as_table(report, is_verbose=True)
    assert "  e: dispatch_event_loop > event_loop_overlap [TP0, TP1]" in verbose
    assert "      poll > all_reduce [TP0]" in verbose
    assert "Time line" in verbose
    assert "Time line" not in as_table(report)
