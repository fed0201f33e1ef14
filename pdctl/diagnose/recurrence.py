"""Was this seen before? Earlier conclusions of one deployment, held against a report."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pdctl.diagnose.report import Report, Seen
from pdctl.diagnose.symptoms import Symptom
from pdctl.evidence.kept import Earlier
from pdctl.evidence.manifest import Conclusion

_COMMON = (Symptom.QUEUED, Symptom.CLIENTS_LEFT, Symptom.STARTING)
"""Symptoms of a busy day: that two incidents share them makes them no kin."""


def conclusion_of(report: Report) -> Conclusion:
    """Return what is worth knowing of a report when the same symptom comes again."""
    return Conclusion(
        incident_id=report.incident_id,
        verdict=report.verdict,
        codes=tuple(cause.code for cause in report.firm),
        subjects=report.firm[0].affected if report.firm else (),
        symptoms=_keys(report),
    )


def with_earlier(report: Report, earlier: Iterable[Earlier]) -> Report:
    """Return the report with the earlier incidents that share a symptom, newest first, one row an incident.

    Runs on the incident that still lasts have its id, and are no earlier ones.
    """
    own = set(_keys(report))
    firm = {cause.code for cause in report.firm}
    rows: dict[str, Seen] = {}
    for item in earlier:
        past = item.conclusion
        if past.incident_id == report.incident_id or not own & set(past.symptoms):
            continue
        rows.setdefault(
            past.incident_id,
            Seen(
                incident_id=past.incident_id,
                at=item.at,
                same_cause=bool(firm & set(past.codes)),
                verdict=past.verdict,
                codes=past.codes,
            ),
        )
    return msgspec.structs.replace(report, seen_before=tuple(rows.values()))


def _keys(report: Report) -> tuple[str, ...]:
    """Return the symptoms without their numbers: kind, instance, unit."""
    keys = (f"{row.symptom} {row.instance} {row.unit}" for row in report.symptoms if row.symptom not in _COMMON)
    return tuple(sorted(set(keys)))
