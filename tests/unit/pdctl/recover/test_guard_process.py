"""The guard of another host, with a `systemctl` that says what a test lets it say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pdctl.recover import guard_process
from pdctl.recover.guard_process import Guard

PLAN: dict[str, Any] = {
    "recovery": "r1",
    "by": "eve@laptop pid 7",
    "patience_s": 0.0,
    "drain_s": 0.0,
    "targets": [{"instance": "decode-0", "unit": "pd@decode-0.service"}],
}
STOPPING = b'{"recovery": "r1", "at": 1.0, "step": "stopping", "by": "eve@laptop pid 7"}\n'


def calls_with(state: str, folder: Path, monkeypatch: pytest.MonkeyPatch, ledger: Path | None = None) -> list[str]:
    """Let a guard finish a plan whose unit is in a state for ever; return the verbs that it used."""
    log, program = folder / "calls", folder / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$2" >> {log}\ncase "$2" in show) {state};; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.setattr(guard_process, "AFTER_KILL_S", 0.0)
    guard = Guard("d", PLAN)
    assert guard.arm() is None
    own = folder / "state" / "pdctl" / "d" / "ledger.jsonl"
    if ledger is None:
        own.write_bytes(STOPPING)
    else:
        own.symlink_to(ledger)
        monkeypatch.setattr(guard, "_entries", lambda: [{"recovery": "r1", "step": "stopping", "by": ""}])
    guard.stay()
    return [verb for verb in log.read_text().split() if verb != "show"]


@pytest.mark.parametrize(
    ("state", "verbs"),
    [
        ("echo inactive", ["reset-failed", "start"]),
        # Its memory takes longer to be given back than we wait: systemd starts it afterwards.
        ("echo deactivating", ["kill", "reset-failed", "start"]),
        # systemd does not say: it may be down.
        ("exit 1", ["reset-failed", "start"]),
        ("echo active", []),
    ],
)
def test_all_is_started_but_what_runs(
    state: str, verbs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is seen to run needs no start."""
    assert calls_with(state, tmp_path, monkeypatch) == verbs


def test_full_disk_keeps_nothing_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be noted is done all the same."""
    assert calls_with("echo inactive", tmp_path, monkeypatch, Path("/dev/full")) == ["reset-failed", "start"]
