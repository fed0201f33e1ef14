"""How firm causes are chosen, ordered, and made to fall."""

from __future__ import annotations

from pdctl.diagnose.analyzer import Analyzer, proves, suggests
from pdctl.diagnose.answer import Answer, Kind, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.explanation import Explanation, explain
from pdctl.diagnose.judgement import judge
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from tests.unit.pdctl.diagnose import incident as make


def _true(kind: Kind) -> object:
    return lambda case, view: yes("so it is", kind)


def _never(case: Case, view: InstanceView) -> Answer:
    return unknown("nobody looked")


def _proven(code: str, *explains: Symptom) -> Analyzer:
    checks = (proves("shown", _true(Kind.LOG)),)  # type: ignore[arg-type]
    return Analyzer(code=code, roles=("prefill",), inputs=(Kind.LOG,), explains=explains, checks=checks)


def _supported(code: str, *explains: Symptom) -> Analyzer:
    checks = (suggests("one", _true(Kind.LOG)), suggests("two", _true(Kind.METRICS)), proves("open", _never))  # type: ignore[arg-type]
    return Analyzer(code=code, roles=("prefill",), inputs=(Kind.LOG,), explains=explains, checks=checks)


def _explain(*analyzers: Analyzer) -> Explanation:
    case = Case(make.evidence(make.PAIR, **make.stalled_pair(), probe_toml=make.PROBE_TIMEOUT))
    return explain(case, judge(case, analyzers))


def _codes(explanation: Explanation) -> tuple[list[str], list[str]]:
    return [item.code.code for item in explanation.initiating], [item.code.code for item in explanation.cascade]


def test_an_established_cause_comes_before_a_supported_one() -> None:
    """However much the supported one explains; and the symptom being explained, it stands alone."""
    found = _explain(
        _supported("PD0306", Symptom.STALLED, Symptom.PROBE_TIMEOUT),
        _proven("PD0503", Symptom.STALLED, Symptom.PROBE_TIMEOUT),
    )
    assert _codes(found)[0] == ["PD0503"]


def test_what_follows_from_a_cause_sorts_below_it() -> None:
    """PD0301 leads to PD0306: both are firm, one began it."""
    found = _explain(_proven("PD0306", Symptom.STALLED), _proven("PD0301", Symptom.STALLED))
    assert _codes(found) == (["PD0301"], ["PD0306"])


def test_rivals_with_one_action_both_stay() -> None:
    """Restart the pair either way; the report says that it is undecided."""
    found = _explain(_proven("PD0311", Symptom.STALLED), _proven("PD0301", Symptom.STALLED))
    assert set(_codes(found)[0]) == {"PD0301", "PD0311"}
    assert len(found.undecided) == 1


def test_rivals_with_different_actions_both_fall() -> None:
    """A wrong confident answer is worse than none."""
    found = _explain(_proven("PD0301", Symptom.STALLED), _proven("PD0201", Symptom.STALLED))
    assert _codes(found) == ([], [])
    assert {item.code.code for item in found.hypotheses} == {"PD0301", "PD0201"}


def test_a_cause_without_a_present_symptom_is_not_established() -> None:
    """A dead thread that nobody misses explains nothing."""
    assert _codes(_explain(_proven("PD0301", Symptom.WRONG_OUTPUT)))[0] == []


def test_two_suggestions_of_one_kind_support_nothing() -> None:
    """They are one source twice."""
    checks = (suggests("one", _true(Kind.LOG)), suggests("two", _true(Kind.LOG)))  # type: ignore[arg-type]
    same = Analyzer(code="PD0301", roles=("prefill",), inputs=(Kind.LOG,), explains=(Symptom.STALLED,), checks=checks)
    assert _codes(_explain(same))[0] == []
