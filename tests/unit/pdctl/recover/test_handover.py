"""Following an executor, and Ctrl-C while it works."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pdctl.deployment.model import Deployment
from pdctl.deployment.state import StateFolder
from pdctl.recover import executor, handover
from pdctl.recover.handover import Following, Interrupted
from pdctl.recover.ledger import Ledger, Notes, Outcome, Step
from pdctl.recover.plan import Fate, Plan, settle

PLAN = Plan(id="r1", deployment=Deployment(name="d", model="m", instances=()), targets=(), drain_s=1, ready_timeout_s=5)


class Followed:
    """A recovery whose executor does nothing; `at` says what happens at each look, then Ctrl-C comes for ever."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = StateFolder(root, "d")
        self.folder.create()
        self.ledger = Ledger(self.folder.folder)
        self.notes = Notes(self.ledger, "r1")
        self.said: list[str] = []
        self.at: list[Callable[[], object]] = []
        self.children: list[subprocess.Popen[bytes]] = []
        monkeypatch.setattr(executor, "spawn", self._spawn)
        monkeypatch.setattr(handover.time, "sleep", self._looked)
        self.following = Following(self.folder, "r1", self.said.append)
        self.following.hand_over(PLAN)

    def _spawn(self, folder: StateFolder, recovery: str) -> subprocess.Popen[bytes]:
        self.children.append(subprocess.Popen(["sleep", "1000"]))
        return self.children[-1]

    def _looked(self, seconds: float) -> None:
        if not self.at:
            raise KeyboardInterrupt
        self.at.pop(0)()


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Followed]:
    followed = Followed(tmp_path, monkeypatch)
    yield followed
    for child in followed.children:
        child.kill()
        child.wait()


def test_ctrl_c_before_the_first_signal_cancels(followed: Followed) -> None:
    """The executor waits behind another pdctl, which is shown; Ctrl-C, and it may never begin."""
    followed.at = [lambda: followed.notes.note(Step.WAITING, detail="waiting for another pdctl (pid 7)"), lambda: None]
    with pytest.raises(Interrupted, match="cancelled before the first signal; nothing was stopped"):
        followed.following.until_executed()
    assert "waiting for another pdctl (pid 7)" in followed.said[-1]
    assert followed.ledger.recovery("r1").outcome is Outcome.CANCELLED
    assert settle(followed.folder.folder, "r1", Fate.CARRIED_OUT) is Fate.CANCELLED


def test_ctrl_c_after_it_waits_until_the_engines_are_up(followed: Followed) -> None:
    """The executor was first: what it stops it starts, and the words say how to finish."""

    def ctrl_c() -> None:
        raise KeyboardInterrupt

    def executed() -> None:
        followed.notes.note(Step.EXECUTED, outcome=Outcome.STARTED)

    settle(followed.folder.folder, "r1", Fate.CARRIED_OUT)
    followed.at = [ctrl_c, executed]
    with pytest.raises(Interrupted, match=r"the execution is over .*to finish: pdctl restart --name d"):
        followed.following.until_executed()
    assert any("engines are down, starting them first" in line for line in followed.said)
    assert followed.ledger.recovery("r1").outcome is None
