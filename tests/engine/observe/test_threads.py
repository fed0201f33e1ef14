"""Supervised threads cannot die quietly (invariant 5)."""

from __future__ import annotations

import threading

import pytest

from engine.observe import threads
from engine.observe.threads import Supervisor


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    """A supervisor whose back-off is one millisecond."""
    monkeypatch.setattr(threads, "BACKOFF_S", (0.001,))
    return Supervisor()


def test_a_crashed_thread_is_restarted_and_counted(supervisor: Supervisor) -> None:
    """The body that raises once runs again, and the crash shows with its text."""
    runs: list[int] = []
    second = threading.Event()

    def body() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise OSError("socket fell over")
        second.set()
        supervisor.stopping.wait()

    supervisor.start("control", body)
    assert second.wait(5)
    (state,) = supervisor.states()
    assert (state.alive, state.restarts) == (True, 1)
    assert state.last_error == "OSError: socket fell over"
    supervisor.stop()


def test_a_thread_that_returns_by_itself_counts_as_crashed(supervisor: Supervisor) -> None:
    """Nobody reads the socket any more, however politely the reader left."""
    returned_twice = threading.Event()
    runs: list[int] = []

    def body() -> None:
        runs.append(1)
        if len(runs) > 2:
            returned_twice.set()
            supervisor.stopping.wait()

    supervisor.start("control", body)
    assert returned_twice.wait(5)
    assert supervisor.states()[0].restarts == 2
    supervisor.stop()


class WatchedEvent(threading.Event):
    """An event that tells when somebody begins to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_for = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.waited_for.set()
        return super().wait(timeout)


def test_a_thread_between_crash_and_restart_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """`/health` can name it while it is not running."""
    monkeypatch.setattr(threads, "BACKOFF_S", (60.0,))
    supervisor = Supervisor()
    stopping = supervisor.stopping = WatchedEvent()

    def body() -> None:
        raise OSError("socket fell over")

    supervisor.start("reader", body)
    assert stopping.waited_for.wait(5)
    assert supervisor.down() == ["reader"]
    supervisor.stop()
