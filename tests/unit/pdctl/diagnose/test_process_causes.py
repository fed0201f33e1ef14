"""What processes and the kernel show: gone, starting, killed, crashed.

One small incident a mechanism: what it names, and that its look-alike is not named.
"""

# ruff: noqa: E501 - lines of logs and files stand as engines print them.
from __future__ import annotations

import pytest

from tests.unit.pdctl.diagnose import incident as make


def test_a_gone_instance() -> None:
    """No process is left, and its peer fails requests."""
    process = '[[process]]\npid = 5\ntitle = "sglang::scheduler"\nstate = "gone"\n'
    report = make.report(
        make.PAIR, p__process_toml=process, p__http_toml=make.REFUSED_GET, d__http_toml=make.HEALTHY_GET
    )
    assert make.first(report) == "PD0101"


@pytest.mark.parametrize(("started_at", "code"), [
    ("2026-06-19T14:29:50Z", "PD0102"),
    ("2026-06-19T04:00:00Z", "PD0101"),
])  # fmt: skip
def test_a_gone_instance_that_was_restarted(started_at: str, code: str) -> None:
    """It dies again and again where its last run was short; restarts that the last run outlived are history."""
    process = f'[[process]]\npid = 5\nstate = "gone"\nrestarts = 3\nstarted_at = {started_at}\n'
    process += "ended_at = 2026-06-19T14:29:55Z\n"
    report = make.report(
        make.PAIR, p__process_toml=process, p__http_toml=make.REFUSED_GET, d__http_toml=make.HEALTHY_GET
    )
    assert make.first(report) == code


def test_a_port_that_refuses_while_weights_load_is_no_death() -> None:
    """The engine opens its port when it has loaded: wait."""
    log = "[2026-06-19 14:27:00 TP0] Init torch distributed begin.\n[2026-06-19 14:28:30 TP0] Load weight begin.\n"
    report = make.report(make.PAIR, p__log_txt=log, p__http_toml=make.REFUSED_GET)
    assert (make.first(report), report.verdict) == ("PD0902", "not_a_wedge")


def test_a_zombie_parent() -> None:
    """One rank is dead, its siblings and the HTTP parent live."""
    rows = [
        ("python3 -m sglang.launch_server", "S"),
        ("sglang::scheduler_TP0", "S"),
        ("sglang::scheduler_TP1", "Z"),
    ]
    process = "".join(
        f'[[process]]\npid = {pid}\ntitle = "{title}"\nstate = "{state}"\n'
        for pid, (title, state) in enumerate(rows, 1)
    )
    files = {**make.stalled_pair(), "p__process_toml": process}
    assert make.first(make.report(make.PAIR, **files)) == "PD0103"


def test_an_xid_before_anything_else() -> None:
    """A GPU's own report explains the dead rank that follows."""
    process = '[[process]]\npid = 5\ntitle = "sglang::scheduler"\nstate = "gone"\nexit_code = 1\n'
    gpu = "[[gpu]]\nindex = 3\nxid = [79]\n"
    report = make.report(make.PAIR, p__process_toml=process, p__gpu_toml=gpu)
    assert make.first(report) == "PD0701"


def test_the_kernel_killed_it() -> None:
    """Killed for memory is another remedy than gone."""
    process = (
        '[[process]]\npid = 5\ntitle = "sglang::scheduler"\nstate = "gone"\nsignal = "SIGKILL"\noom_killed = true\n'
    )
    assert make.first(make.report(make.PAIR, p__process_toml=process)) == "PD0702"


def test_a_segfault_in_the_transfer_library() -> None:
    """Signal 11 and a NIXL frame under it."""
    process = '[[process]]\npid = 5\ntitle = "sglang::scheduler_TP0"\nstate = "gone"\nsignal = 11\n'
    log = 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n  File "a/_api.py", line 792 in add_remote_agent\n'
    assert make.first(make.report(make.PAIR, p__process_toml=process, p__log_txt=log)) == "PD0312"
