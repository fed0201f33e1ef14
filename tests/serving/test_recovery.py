"""Real wedges of real engines behind the real router, recovered and proven by `pdctl`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.serving.rig import until
from tests.serving.served import Served, served_by_pdctl

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """1 prefill, 1 decode and a router; well again before each test."""
    with served_by_pdctl(tmp_path_factory.mktemp("recovery"), tiny_model_dir) as served:
        yield served


@pytest.fixture(autouse=True)
def well(served: Served) -> None:
    """A test does not begin before the one before it has left everything well."""
    until(served.is_well, 60, "well")


def causes(served: Served, evidence: str) -> list[str]:
    """Return the firm causes that `pdctl diagnose` finds in a kept folder."""
    report = served.json("diagnose", evidence)
    return [cause["code"] for cause in report["causes"] if cause["confidence"] in ("established", "supported")]


def test_stopped_prefill_is_recovered_alone_and_proven(served: Served) -> None:
    """SIGSTOP: the cause is named, only prefill is replaced, five requests pass on the pair and two by the router."""
    before = served.pids()
    served.signal("prefill-0", signal.SIGSTOP)
    done = served.json("snapshot-and-restart", "--yes")
    after = served.pids()
    assert (done["outcome"], done["detail"]) == ("recovered", "")
    assert (after["decode-0"], after["router"]) == (before["decode-0"], before["router"])
    assert after["prefill-0"] not in (None, before["prefill-0"])
    pair, router = done["verification"]["pairs"][0], done["verification"]["router"]
    assert (pair["via"], pair["sent"], pair["passed"]) == ("prefill-0 -> decode-0", 5, 5)
    assert (router["sent"], router["passed"]) == (2, 2)
    assert causes(served, done["kept"])[0] == "PD0305"
    with pytest.raises(psutil.NoSuchProcess):
        psutil.Process(before["prefill-0"])
    last = served.json("history")[-1]
    assert last["entries"][0]["summary"]["cause"].startswith("PD0305")


def test_killed_decode_is_recovered_alone(served: Served) -> None:
    """kill -9 of decode: it is started again beside the same prefill."""
    before = served.pids()
    served.signal("decode-0", signal.SIGKILL)
    until(lambda: served.pids()["decode-0"] is None, 10, "decode dead")
    done = served.json("snapshot-and-restart", "--yes")
    after = served.pids()
    assert done["outcome"] == "recovered"
    assert after["prefill-0"] == before["prefill-0"]
    assert after["decode-0"] not in (None, before["decode-0"])
    assert causes(served, done["kept"])[0] == "PD0101"


def test_what_serves_is_refused(served: Served) -> None:
    """Exit 5, the verdict and the way round it are said, nothing is touched and nothing is in the history."""
    before, known = served.pids(), len(served.json("history"))
    done = served.pdctl("snapshot-and-restart", "--yes", "--reason", "try")
    assert done.returncode == 5
    assert "just served a request, and no other could instead" in done.stderr
    assert "--force --reason" in done.stderr
    assert (served.pids(), len(served.json("history"))) == (before, known)


def test_planned_restart_of_both_is_proven(served: Served) -> None:
    """With --force, because there is no second pair; the table has every phase."""
    before = served.pids()
    done = served.json("restart", "--yes", "--force", "--reason", "maintenance")
    after = served.pids()
    assert done["outcome"] == "recovered"
    assert all(after[name] not in (None, before[name]) for name in ("prefill-0", "decode-0"))
    assert [phase["name"] for phase in done["phases"]][-3:] == ["stop", "start to ready", "verify"]


def test_router_that_fails_alone_is_told_with_its_own_step(served: Served) -> None:
    """Direct requests pass, the router is stopped: outcome router_fails and the command; that one cures it."""
    served.signal("router", signal.SIGSTOP)
    done = served.json("restart", "decode-0", "--yes", "--force", "--reason", "drill")
    assert done["outcome"] == "router_fails"
    assert done["verification"]["router"]["sent"] == 1
    cure = served.json("restart", "router", "--yes", "--force", "--reason", "direct requests pass")
    assert cure["outcome"] == "recovered"


def test_a_person_is_asked_for_the_router_that_fails_alone(served: Served) -> None:
    """--yes was for the engine; the router has its own. Then it is another process, and the way is proven."""
    served.signal("router", signal.SIGSTOP)
    before = served.pids()["router"]
    cured = served.typed("r\n", "restart", "decode-0", "--yes", "--force", "--reason", "drill")
    assert cured.returncode == 0, cured.stderr
    assert "restart     router   (forced: direct requests pass, those through the router do not)" in cured.stderr
    assert served.pids()["router"] not in (None, before)


def test_snapshot_is_complete_and_clean(served: Served) -> None:
    """Both products; no process is left stopped; the archive names neither model path nor home."""
    done = served.json("snapshot")
    assert done["summary"]["unwritten"] is None
    archive = Path(done["archive"])
    assert archive.stat().st_mode & 0o777 == 0o600
    assert Path(done["kept"]).stat().st_mode & 0o777 == 0o700
    from pdctl.evidence.archive import read

    text = b"\n".join(read(archive).values())
    assert str(served.home).encode() not in text
    states = [psutil.Process(pid).status() for pid in served.pids().values() if pid]
    assert psutil.STATUS_STOPPED not in states
