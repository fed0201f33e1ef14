"""What `systemctl show` says, read as systemd 252 writes it."""

from __future__ import annotations

import pytest

from pdctl.errors import PdctlError
from pdctl.hosts.child import Child, End
from pdctl.managers import systemd
from pdctl.managers.systemd import NoAnswer, parse
from pdctl.managers.unkillable import Unkillable
from tests.fakes.answering_host import AnsweringHost

RUNNING = """\
Id=pd@decode-0.service
LoadState=loaded
ActiveState=active
SubState=running
Result=success
MainPID=4711
InvocationID=1108ab26eb03415ca7bbce892020c372
NRestarts=2
Restart=on-failure
ExecMainStartTimestamp=Sun 2026-11-29 19:13:57 UTC
MemoryCurrent=[not set]
FragmentPath=/etc/systemd/system/pd@.service
DropInPaths=/etc/systemd/system/pd@decode-0.service.d/a.conf /run/systemd/system/pd@.service.d/b.conf
EnvironmentFiles=/etc/pd.env (ignore_errors=no)
ConsistsOf=pd@prefill-0.service
BoundBy=pd.target
"""


def sight_of(**changes: str) -> str:
    """Return the words for the unit above with some properties changed."""
    lines = [line for line in RUNNING.splitlines() if line.partition("=")[0] not in changes]
    return (
        parse("\n".join([*lines, *(f"{name}={value}" for name, value in changes.items())]))["pd@decode-0.service"]
        .sight()
        .words
    )


def test_running_unit_is_named_by_its_invocation() -> None:
    """The id of this run, its pid, when it began (UTC) and how often systemd restarted it."""
    seen = parse(RUNNING)["pd@decode-0.service"].sight()
    assert (seen.is_running, seen.pid, seen.run) == (True, 4711, "1108ab26eb03415ca7bbce892020c372")
    assert (seen.started_at, seen.restarts, seen.restart) == (1795979637.0, 2, "on-failure")


def test_not_set_is_absent() -> None:
    """Never zero, never a number."""
    unit = parse(RUNNING)["pd@decode-0.service"]
    assert unit.number("MemoryCurrent") is None
    assert "MemoryCurrent" not in unit.shown


def test_several_units_are_kept_apart() -> None:
    """An empty line stands between them."""
    other = RUNNING.replace("decode-0", "prefill-0").replace("4711", "4712")
    assert {name: unit.pid for name, unit in parse(f"{RUNNING}\n{other}").items()} == {
        "pd@decode-0.service": 4711,
        "pd@prefill-0.service": 4712,
    }


def test_invocation_of_a_run_that_is_over_names_nothing() -> None:
    """systemd goes on showing it; a plan must not take it for a process."""
    seen = parse(RUNNING.replace("=active", "=inactive").replace("=running", "=dead").replace("4711", "0"))
    assert (seen["pd@decode-0.service"].sight().run, seen["pd@decode-0.service"].sight().is_down) == (None, True)


def test_unit_between_two_runs_is_neither_up_nor_down() -> None:
    """`activating (auto-restart)`: systemd will start it, so nobody else should."""
    seen = parse(RUNNING.replace("=active", "=activating").replace("=running", "=auto-restart").replace("4711", "0"))
    sight = seen["pd@decode-0.service"].sight()
    assert (sight.is_running, sight.is_pending, sight.is_down) == (False, True, False)


def test_unit_that_still_stops_has_its_process() -> None:
    """`deactivating` with a main pid: the old run, by its name."""
    sight = parse(RUNNING.replace("=active", "=deactivating"))["pd@decode-0.service"].sight()
    assert (sight.is_running, sight.run) == (True, "1108ab26eb03415ca7bbce892020c372")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ActiveState": "failed", "Result": "exit-code", "ExecMainCode": "1", "ExecMainStatus": "7"},
         "failed (exit-code): exited with code 7"),
        ({"ActiveState": "failed", "Result": "watchdog", "ExecMainCode": "2", "ExecMainStatus": "6"},
         "failed (watchdog): killed by signal 6"),
        ({"LoadState": "masked", "ActiveState": "inactive"}, "unit masked"),
        ({"ActiveState": "inactive", "SubState": "dead"}, "inactive"),
    ],
)  # fmt: skip
def test_end_is_told_in_words(changes: dict[str, str], words: str) -> None:
    """As `pdctl status` shows it."""
    assert sight_of(**changes) == words


def test_files_and_ties_are_lists() -> None:
    """What drift looks at, and what a stop takes along."""
    unit = parse(RUNNING)["pd@decode-0.service"]
    assert len(unit.files) == 3
    assert unit.environment == ("/etc/pd.env",)
    assert unit.stopped_with == ("pd@prefill-0.service", "pd.target")


UNIT = "pd@decode-0.service"


def showing(*states: str | None) -> AnsweringHost:
    """Return a host where `systemctl show` prints one state after the other, the last one for ever; None: no answer."""
    left = list(states)

    def answer(argv: tuple[str, ...]) -> Child:
        if "show" not in argv:
            return Child(argv=argv, end=End.EXITED, code=0)
        state = left.pop(0) if len(left) > 1 else left[0]
        if state is None:
            return Child(argv=argv, end=End.UNREACHABLE, stderr="ssh:gpu7 cannot be reached")
        pid = "4711" if state in ("active", "deactivating") else "0"
        shown = f"Id={UNIT}\nLoadState=loaded\nActiveState={state}\nMainPID={pid}\n"
        return Child(argv=argv, end=End.EXITED, code=0, stdout=shown.encode())

    return AnsweringHost(answer)


def no_pause(_: float) -> None:
    """Wait for nothing."""


def test_lost_look_is_made_again_while_a_unit_stops() -> None:
    """A connection that broke for a moment says nothing about the process."""
    host = showing("deactivating", None, None, "inactive")
    assert systemd.await_stopped(host, UNIT, 5, no_pause) is False
    assert not [words for words in host.asked if "kill" in words]


def test_only_what_was_seen_alive_survives_sigkill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nobody knows: the host is not to be replaced for a broken connection."""
    monkeypatch.setattr(systemd, "LOST_S", 0.05)
    monkeypatch.setattr(systemd, "AFTER_KILL_S", 0.05)
    with pytest.raises(Unkillable, match="survives SIGKILL"):
        systemd.await_stopped(showing("deactivating"), UNIT, 0, no_pause)
    with pytest.raises(NoAnswer, match="cannot be reached"):
        systemd.await_stopped(showing("deactivating", None), UNIT, 5, no_pause)


def test_unit_that_is_still_being_prepared_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """ExecStartPre= that pulls an image takes its time; whoever waits until it is well has the limit."""
    monkeypatch.setattr(systemd, "BIRTH_S", 0.05)
    assert systemd.start(showing("activating"), UNIT, no_pause).is_pending
    with pytest.raises(PdctlError, match="did not start: inactive"):
        systemd.start(showing("inactive"), UNIT, no_pause)
