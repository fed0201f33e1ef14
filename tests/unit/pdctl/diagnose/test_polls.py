"""SGLang's /health is a request of one token: what health checks move is no service."""

from __future__ import annotations

import pytest

from pdctl.diagnose.case import Case
from pdctl.diagnose.symptoms import is_busy, progress
from pdctl.diagnose.verdict import Verdict
from pdctl.dialects.signals import Gauge
from tests.unit.pdctl.diagnose import incident as make


def polled(text: str, tokens: int, steps: int) -> str:
    """Return a scrape of the pair after so many more tokens and steps."""
    for name, base in (("prefill_compute", 500), ("decode", 9000)):
        text = text.replace(f'mode="{name}"}} {base}', f'mode="{name}"}} {base + tokens}')
    for base in (70, 800):
        text = text.replace(f"passes_total {base}\n", f"passes_total {base + steps}\n")
    return text


@pytest.mark.parametrize(("tokens", "is_served"), [(0, False), (1, False), (24, False), (900, True)])
def test_health_checks_serve_no_bootstrap_queue(tokens: int, is_served: bool) -> None:
    """A queue that waits for its peer stalls though a kubelet's checks pass beside it; a prompt is progress."""
    files = make.stalled_pair()
    files["p__metrics_txt"] = polled(files["p__metrics_txt"], tokens, tokens)
    view = Case(make.evidence(make.PAIR, **files)).prefills[0]
    assert progress(view, Gauge.BOOTSTRAP) is is_served
    assert is_busy(view) is is_served


def test_a_wedge_under_health_checks_is_a_wedge() -> None:
    """Checks on both sides neither move the pair nor keep it busy."""
    files = make.stalled_pair()
    for side in "pd":
        files[f"{side}__metrics_txt"] = polled(files[f"{side}__metrics_txt"], 12, 12)
    report = make.report(make.PAIR, **files, probe_toml=make.PROBE_TIMEOUT)
    assert report.verdict is Verdict.WEDGED


def test_an_idle_pair_under_health_checks_proves_nothing() -> None:
    """Nothing but checks moves it: that its path works is not known."""
    idle = {
        name: text.replace(" 40\n", " 0\n").replace('"} 1\n', '"} 0\n') for name, text in make.stalled_pair().items()
    }
    for side in "pd":
        idle[f"{side}__metrics_txt"] = polled(idle[f"{side}__metrics_txt"], 12, 12)
    assert make.report(make.PAIR, **idle).verdict is Verdict.UNKNOWN
