"""The watch's own metrics."""

from __future__ import annotations

from datetime import timedelta

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pdctl.watch.exporter import Exporter
from pdctl.watch.sight import CanarySight, Finding, InstanceSight, Sight
from tests.unit.pdctl.watch.samples import START

SIGHT = Sight(
    deployment="lab",
    at=START,
    verdict="wedged",
    confirmed="healthy",
    confirmed_since=START - timedelta(minutes=1),
    window_s=10.0,
    took_s=0.2,
    instances=(
        InstanceSight(name="d", role="decode", state="stopped"),
        InstanceSight(name="p", role="prefill", state="ok", running=2.0, queues={"waiting": 3.0, "inflight": 1.0}),
    ),
    causes=(Finding(code="PD0305", label="silent_peer", level="error", instance="d", message="stopped"),),
    canaries=(
        CanarySight(via="router", passed=False, at=1000.5, took_ms=250.0, why="503"),
        CanarySight(via="p -> d", passed=None, at=1000.5, took_ms=90.0, why="/rooms answered 403"),
    ),
)


def scraped(*sights: Sight) -> dict[tuple[str, ...], float]:
    """Return name and label values, without the deployment's -> value."""
    exporter = Exporter("lab", None)
    for sight in sights:
        exporter.show(sight)
    registry = CollectorRegistry()
    registry.register(exporter)
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for one in family.samples:
            labels = dict(one.labels)
            assert labels.pop("deployment") == "lab"
            found[(one.name, *labels.values())] = one.value
    return found


def test_the_verdict_that_alarms_is_the_confirmed_one() -> None:
    """One odd judgement is counted, and alarms nobody."""
    found = scraped(SIGHT)
    assert found["pdctl_watch_verdict", "healthy"] == 1
    assert found["pdctl_watch_verdict", "wedged"] == 0
    assert found["pdctl_watch_judgements_total", "wedged"] == 1


def test_instances_tell_what_is_known_of_them_alone() -> None:
    """Levels of an instance that does not answer are left out."""
    found = scraped(SIGHT)
    assert found["pdctl_watch_instance_well", "d", "decode"] == 0
    assert found["pdctl_watch_waiting", "p", "prefill"] == 4
    assert ("pdctl_watch_waiting", "d", "decode") not in found


def test_causes_and_canaries_are_labelled() -> None:
    """What an alert's text is made of."""
    found = scraped(SIGHT)
    assert found["pdctl_watch_cause", "PD0305", "d", "silent_peer", "error"] == 1
    assert found["pdctl_watch_canary_passed", "router"] == 0
    assert found["pdctl_watch_canary_seconds", "router"] == 0.25
    # It was answered; that it could not be proven is no failure of the way.
    assert ("pdctl_watch_canary_passed", "p -> d") not in found
    assert found["pdctl_watch_canary_seconds", "p -> d"] == 0.09


def test_before_the_first_look_no_verdict_is_claimed() -> None:
    """Prometheus sees that there is a watch, and that it has judged nothing."""
    assert not [key for key in scraped() if key[0] == "pdctl_watch_verdict"]
