"""The short form: each kind of clients on a pair of the tiny model, judged once; and how judgements are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.judgements.judging import Judgement, folder_of, is_alarm, judged, pending, served, upper_bound
from tests.judgements.systems import CLIENTS, SYSTEMS
from tests.serving.served import served_by_pdctl

ONE = Judgement(
    at=1.0,
    code="a",
    commit=None,
    model="m",
    system=SYSTEMS[0].name,
    clients=CLIENTS[0].name,
    verdict="healthy",
    firm=(),
    is_alarm=False,
    took_s=1.0,
    load_average=0.5,
)
CELLS = len(SYSTEMS) * len(CLIENTS)


@pytest.mark.slow
def test_a_pair_in_good_health_is_no_alarm_whatever_its_clients_do(tiny_model_dir: Path, tmp_path: Path) -> None:
    """None, few, many, more than it can serve; the evidence of what is no alarm is deleted."""
    with served_by_pdctl(tmp_path, tiny_model_dir):
        folder, deployment = folder_of(tmp_path)
        for clients in CLIENTS:
            with served(deployment, clients):
                one = judged(folder, deployment, SYSTEMS[0], clients)
            assert not one.is_alarm, one
        assert list((folder.folder / "incidents").iterdir()) == []


@pytest.mark.parametrize(
    ("verdict", "firm", "is_wrong"),
    [
        ("healthy", (), False),
        ("not_a_wedge", ("PD0907",), False),
        ("healthy", ("PD0901",), True),
        ("healthy", ("PD0301",), True),
        ("wedged", (), True),
        ("unknown", (), True),
    ],
)
def test_what_is_an_alarm_without_clients(verdict: str, firm: tuple[str, ...], is_wrong: bool) -> None:
    """A verdict that is not good, or a cause that says what is not the case."""
    assert is_alarm(verdict, firm, CLIENTS[0]) is is_wrong


def test_every_cell_gets_its_share_round_by_round() -> None:
    """Twelve cells, sixty judgements, two in a row: five each, in rounds of two, two and one."""
    wanted = list(pending([], "a", 5 * CELLS, 2))
    assert [count for _, _, count in wanted] == [2] * 2 * CELLS + [1] * CELLS
    assert {(system.name, clients.name) for system, clients, _ in wanted[:CELLS]} == {
        (system.name, clients.name) for system in SYSTEMS for clients in CLIENTS
    }


def test_what_was_judged_by_these_sources_is_not_judged_again() -> None:
    """Three in the file: one of the second round is missing there; other sources count nothing."""
    wanted = list(pending([ONE] * 3, "a", 4 * CELLS, 2))
    assert [count for system, clients, count in wanted if (system, clients) == (SYSTEMS[0], CLIENTS[0])] == [1]
    assert len(list(pending([ONE] * 3, "b", 4 * CELLS, 2))) == 2 * CELLS


@pytest.mark.parametrize(("alarms", "judgements", "bound"), [(0, 300, 0.00994), (0, 59, 0.0495), (1, 300, 0.0157)])
def test_the_bound_of_a_rate(alarms: int, judgements: int, bound: float) -> None:
    """By hand: 1 - 0.05 ** (1 / n) without an alarm; with one, the solution of q**n + n p q**(n - 1) = 0.05."""
    assert upper_bound(alarms, judgements) == pytest.approx(bound, abs=0.0001)
