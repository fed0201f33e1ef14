"""What one look shows of each instance."""

from __future__ import annotations

from pdctl.watch.sight import InstanceSight, instance_sights
from pdctl.watch.window import PATIENCE_S, Window
from tests.unit.pdctl.watch.samples import DEPLOYMENT, SILENT, STOPPED, WELL, metrics, sample


def sights(**last: bytes) -> dict[str, InstanceSight]:
    """Return the rows after ten seconds; decode had 100 tokens, 2 MB and 5 requests at first."""
    window = Window(DEPLOYMENT)
    window.add(sample(0, d__metrics=metrics(tokens=100, kv_bytes=2_000_000, done=5), d__http=WELL))
    window.add(sample(10, **last))
    return {one.name: one for one in instance_sights(window.evidence((), PATIENCE_S))}


def test_rates_are_increases_over_the_window() -> None:
    """200 tokens, 30 MB, 4 requests in 10 s; levels are those of now."""
    now = metrics(decoding=3, age_s=7.5, tokens=300, kv_bytes=32_000_000, done=9)
    one = sights(d__metrics=now, d__http=WELL)["d"]
    assert (one.state, one.running, one.oldest_s) == ("ok", 3, 7.5)
    assert (one.tokens_s, one.kv_mb_s, one.requests_s) == (20.0, 3.0, 0.4)


def test_what_nobody_tells_is_unknown_not_zero() -> None:
    """A router without metrics."""
    one = sights(r__http=WELL)["r"]
    assert (one.state, one.running, one.waiting, one.tokens_s, one.failed) == ("ok", None, None, None, None)


def test_states_say_what_is_wrong_in_a_word() -> None:
    """Stopped by a signal, refusing, saying that it is unwell, not answering."""
    refused = b'[[get]]\npath = "/health"\ntook_ms = 1\nerror = "refused"\n'
    unwell = b'[[get]]\npath = "/health"\nstatus = 503\ntook_ms = 1\n'
    assert sights(d__http=SILENT, d__process=STOPPED)["d"].state == "stopped"
    assert sights(d__http=refused)["d"].state == "gone"
    assert sights(d__http=unwell, d__metrics=metrics())["d"].state == "unwell"
    assert sights(d__http=SILENT)["d"].state == "silent"
