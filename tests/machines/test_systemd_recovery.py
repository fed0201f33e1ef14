"""Real wedges of real engines under a real systemd, recovered by the managers that pdctl has for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machines.booted import Booted
from tests.machines.served_by_systemd import UNIT, ServedBySystemd
from tests.machines.ssh_server import ssh_hosts

pytestmark = pytest.mark.slow
NAMES = ("prefill-0", "decode-0", "router")


@pytest.fixture(scope="module")
def served(machine: Booted, tiny_model_dir: Path) -> Iterator[ServedBySystemd]:
    """1 prefill, 1 decode and a router, in the units that pdctl prints."""
    home = machine.home / "served"
    home.mkdir()
    # Of the test's folders the machine sees its home alone.
    model = Path(shutil.copytree(tiny_model_dir, home / "model"))
    served = ServedBySystemd(machine, home)
    served.install(model)
    served.until_well()
    yield served
    # There is nothing to drain; whom systemd starts again it stops with the target.
    machine.run("systemctl", "kill", "--signal=SIGKILL", "pd-default@*.service")
    machine.systemctl("stop", "pd-default.target")


def runs(served: ServedBySystemd) -> dict[str, str]:
    """Return what names the present run of each instance."""
    return {name: served.invocation(name) for name in NAMES}


def test_units_are_ready_when_the_engine_says_so_and_have_its_keep_alive(served: ServedBySystemd) -> None:
    """Type=notify and WatchdogSec= as printed; status shows what systemd knows."""
    rows = {row["name"]: row for row in served.json("status")["instances"]}
    for name in ("prefill-0", "decode-0"):
        unit = UNIT.format(name)
        assert served.machine.shown(unit, "ActiveState") == "active"
        assert served.machine.shown(unit, "WatchdogTimestampMonotonic") not in ("", "0")
        assert (rows[name]["pid"], rows[name]["process"]) == (served.machine.pid(unit), "running")


def test_stopped_prefill_is_recovered_alone_and_proven(served: ServedBySystemd) -> None:
    """SIGSTOP of prefill: its unit is a new run, decode's and the router's are the old ones; evidence is kept."""
    before = runs(served)
    served.freeze("prefill-0")
    done = served.json("snapshot-and-restart", "--yes")
    after = runs(served)
    assert (done["outcome"], done["detail"]) == ("recovered", "")
    assert [name for name in NAMES if before[name] != after[name]] == ["prefill-0"]
    started = [entry for entry in served.json("history")[-1]["entries"] if entry["step"] == "started"]
    assert [(entry["instance"], entry["run"]) for entry in started] == [("prefill-0", after["prefill-0"])]
    kept = Path(done["kept"])
    assert f'invocation_id = "{before["prefill-0"]}"' in (kept / "prefill-0" / "unit.toml").read_text()
    assert "serves" in (kept / "decode-0" / "log.txt").read_text()


def test_wedge_on_another_host_is_recovered_over_ssh(served: ServedBySystemd) -> None:
    """Decode stands on a host that only ssh reaches: the same recovery, and that host's ledger has all of it."""
    folder = served.machine.home / "ssh"
    folder.mkdir()
    with ssh_hosts(folder) as ssh:
        ssh.add("box", machine=served.machine)
        before = runs(served)
        served.freeze("decode-0")
        done = served.pdctl_from_outside(ssh, "snapshot-and-restart", "--yes", "--reason", "drill")
        after = runs(served)
    assert (done["outcome"], done["detail"]) == ("recovered", "")
    assert [name for name in NAMES if before[name] != after[name]] == ["decode-0"]
    kept = Path(done["kept"])
    assert f'invocation_id = "{before["decode-0"]}"' in (kept / "decode-0" / "unit.toml").read_text()
    assert "serves" in (kept / "decode-0" / "log.txt").read_text()
    there = (served.machine.root / "root/.local/state/pdctl/default/ledger.jsonl").read_text()
    steps = [json.loads(line)["step"] for line in there.splitlines() if line]
    assert [step for step in steps if step in ("planned", "stopping", "started", "executed", "ended")] == [
        "planned", "stopping", "started", "executed", "ended",
    ]  # fmt: skip


def test_instance_that_others_restart_is_told_awaited_and_proven(served: ServedBySystemd) -> None:
    """Manager `none`: the exact command is printed; once somebody has run it, the new process is proven."""
    text = (served.home / "pd.toml").read_text()
    (served.home / "others.toml").write_text(text.replace('manager = "systemd"', 'manager = "none"'))
    before = runs(served)
    arguments = ("--file", "others.toml", "--yes", "--force", "--reason", "drill", "-o", "json")
    operator = served.start("restart", "decode-0", *arguments)
    assert operator.stderr is not None
    command = f"systemctl restart {UNIT.format('decode-0')}"
    said = []
    for line in operator.stderr:
        said.append(line)
        if line.strip() == command:
            break
    assert said[-1].strip() == command, said
    served.machine.systemctl(*command.split()[1:])
    out, err = operator.communicate(timeout=120)
    assert operator.returncode == 0, err
    assert '"outcome": "recovered"' in out
    assert [name for name in NAMES if before[name] != runs(served)[name]] == ["decode-0"]
