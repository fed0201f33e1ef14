"""Lines of kernel.txt: they are the host's, reach back for months, and name whatever ran or was plugged in there."""

from __future__ import annotations

import pytest

from pdctl.diagnose.case import Case
from pdctl.dialects.signals import Event
from tests.unit.pdctl.diagnose import incident as make

RUNNING = (
    '[[process]]\npid = 100\ntitle = "sglang::scheduler"\nstate = "S"\n'
    "started_at = 2026-06-19T14:20:00Z\nrestarts = 1\n"
)
OWN_GPU = '[[gpu]]\nindex = 1\nbus = "00000000:5E:00.0"\n'
XID = "[Fri Jun 19 {at} 2026] NVRM: Xid (PCI:0000:{slot}:00): 79, {pid}GPU has fallen off the bus.\n"


@pytest.mark.parametrize(
    ("line", "is_ours"),
    [
        ("nginx[4711]: segfault at 0 ip 00007f sp 00007f error 4 in nginx[55+1]", False),
        ("python3[100]: segfault at 0 ip 00007f sp 00007f error 4 in libucp.so[55+1]", True),
        ("traps: nginx[4711] general protection fault ip:7f sp:7f error:0 in libc.so", False),
        ("traps: python3[100] general protection fault ip:7f sp:7f error:0 in libc.so", True),
    ],
)
def test_a_crash_counts_for_its_victim(line: str, is_ours: bool) -> None:
    """A program of the host that crashed is not the engine."""
    files = {"p__process_toml": RUNNING, "p__kernel_txt": f"[Fri Jun 19 14:29:00 2026] {line}\n"}
    view = Case(make.evidence(make.PAIR, **files)).prefills[0]
    assert (bool(view.events(Event.FATAL_SIGNAL)), view.ended is not None) == (is_ours, is_ours)


@pytest.mark.parametrize(
    ("at", "slot", "pid", "is_proven"),
    [
        ("14:29:00", "5e", "", True),
        ("14:29:00", "3b", "", False),
        ("14:29:00", "3b", "pid=4711, name=python, ", False),
        ("14:29:00", "3b", "pid=100, name=python, ", True),
        ("14:10:00", "5e", "", False),
        ("03:11:27", "5e", "", False),
    ],
)
def test_a_fault_counts_for_the_device_and_since_the_start(at: str, slot: str, pid: str, is_proven: bool) -> None:
    """An Xid proves a fault of the GPU that it names since the process runs: not of its neighbours, nor of the past."""
    kernel = XID.format(at=at, slot=slot, pid=pid)
    files = {"p__gpu_toml": OWN_GPU, "p__process_toml": RUNNING, "p__kernel_txt": kernel}
    report = make.report(make.PAIR, **make.stalled_pair(), **files)
    assert (make.status(report, "PD0701") == "established") == is_proven


def test_codes_without_times_are_as_old_as_the_lines_that_have_them() -> None:
    """A list of codes beside an old line of the kernel proves no more than the line."""
    files = {"p__gpu_toml": OWN_GPU + "xid = [79]\n", "p__process_toml": RUNNING}
    old = XID.format(at="03:11:27", slot="5e", pid="")
    stalled = make.stalled_pair()
    assert make.status(make.report(make.PAIR, **stalled, **files), "PD0701") == "established"
    assert make.status(make.report(make.PAIR, **stalled, **files, p__kernel_txt=old), "PD0701") != "established"
