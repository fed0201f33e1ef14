"""Units that a person installs."""

from __future__ import annotations

import pytest

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.deployment.units import unit_files
from pdctl.errors import UsageError


def deployed(dialect: str, *start: str, **env: str) -> Deployment:
    """Return a pair and a router."""
    roles = (("prefill-0", Role.PREFILL), ("decode-0", Role.DECODE))
    engines = [
        Instance(name=name, role=role, dialect=dialect, version="0.5.13" if dialect == "sglang" else None,
                 url=f"http://127.0.0.1:{port}", manager="shim", start=start or ("/bin/serve",), env=env)
        for port, (name, role) in enumerate(roles, 1)
    ]  # fmt: skip
    router = Instance(name="router", role=Role.ROUTER, dialect="smg", url="http://127.0.0.1:9", start=("/bin/smg",))
    return Deployment(name="d", model="m", instances=(*engines, router))


def contents(deployment: Deployment) -> dict[str, str]:
    """Return the files by the end of their path."""
    return {file.path.removeprefix("/etc/systemd/system/"): file.content for file in unit_files(deployment)}


def test_one_target_holds_all_of_them() -> None:
    """It wants each, and a stop or restart of it reaches each."""
    files = contents(deployed("pdctl"))
    wants = [line for line in files["pd-d.target"].splitlines() if line.startswith("Wants=")]
    assert wants == ["Wants=pd-d@prefill-0.service", "Wants=pd-d@decode-0.service", "Wants=pd-d@router.service"]
    assert "PartOf=pd-d.target" in files["pd-d@.service"]


def test_peers_that_may_not_survive_restart_together() -> None:
    """SGLang: a restart of decode alone would leave prefill with a stale peer, so systemd takes both."""
    files = contents(deployed("sglang"))
    assert "PartOf=pd-d@decode-0.service" in files["pd-d@prefill-0.service.d/command.conf"]
    assert "PartOf=pd-d@prefill-0.service" in files["pd-d@decode-0.service.d/command.conf"]
    assert "PartOf=" not in files["pd-d@router.service.d/command.conf"]


def test_our_engine_survives_and_is_not_tied() -> None:
    """A crash of one side must not cost the other."""
    files = contents(deployed("pdctl"))
    assert "PartOf=" not in files["pd-d@prefill-0.service.d/command.conf"]


def test_only_what_tells_systemd_has_a_watchdog() -> None:
    """Another engine would be killed every 30 s."""
    assert "WatchdogSec=30" in contents(deployed("pdctl"))["pd-d@decode-0.service.d/command.conf"]
    assert "WatchdogSec=" not in contents(deployed("sglang"))["pd-d@decode-0.service.d/command.conf"]
    assert "WatchdogSec=" not in contents(deployed("pdctl"))["pd-d@router.service.d/command.conf"]


def test_words_are_quoted_as_systemd_reads_them() -> None:
    """Specifiers and variables are not expanded."""
    files = contents(deployed("sglang", "/bin/x", "a b", 'say "hi"', "50%", "$HOME", "back\\slash", A="1 %h"))
    lines = files["pd-d@decode-0.service.d/command.conf"].splitlines()
    assert r'ExecStart=/bin/x "a b" "say \"hi\"" "50%%" "$$HOME" "back\\slash"' in lines
    assert 'Environment="A=1 %%h"' in lines


def test_deployment_file_names_the_units_and_leaves_the_command_to_them() -> None:
    """A second copy of the command would only grow old."""
    text = contents(deployed("pdctl"))["pd.toml"]
    assert 'unit = "pd-d@decode-0.service"' in text
    assert 'manager = "systemd"' in text
    assert "start =" not in text


def test_instance_without_a_command_has_no_unit() -> None:
    """It is told which."""
    instance = Instance(name="x", role=Role.DECODE, dialect="vllm", url="http://127.0.0.1:1")
    with pytest.raises(UsageError, match="x has no start command"):
        unit_files(Deployment(name="d", model="m", instances=(instance,)))
