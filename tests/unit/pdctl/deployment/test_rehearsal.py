"""Which deployments may be broken on purpose."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pdctl.deployment import rehearsal
from pdctl.deployment.model import Role
from pdctl.deployment.state import StateFolder
from pdctl.errors import Refused, UsageError
from tests.unit.pdctl.deployment.test_layout import laid_out, option


def test_engines_take_failpoints_and_the_router_stays_as_it_is(tmp_path: Path) -> None:
    """Both engines get the flag and a flight file beside their log; flags of a role go to that role alone."""
    plain = laid_out()
    made = rehearsal.for_drills(plain, StateFolder(tmp_path, "d"), {Role.DECODE: ("--kv-tokens", "512")})
    prefill, decode = made.of_role(Role.PREFILL)[0], made.of_role(Role.DECODE)[0]
    assert prefill.start is not None
    assert prefill.start[-3:] == ("--enable-failpoints", "--flight-file", f"{tmp_path}/d/logs/prefill-0.flight")
    assert option(decode, "--kv-tokens") == "512"
    assert made.router == plain.router


def test_made_for_drills_twice_is_made_once(tmp_path: Path) -> None:
    """A kept deployment file has the flags already; other flags replace those of the drill before."""
    folder = StateFolder(tmp_path, "d")
    before = rehearsal.for_drills(laid_out(), folder, {Role.DECODE: ("--page-size", "32")})
    assert rehearsal.for_drills(before, folder) == rehearsal.for_drills(laid_out(), folder)


def test_other_engines_take_no_failpoints(tmp_path: Path) -> None:
    """A deployment without an engine of ours is refused with what it would need."""
    others = tuple(msgspec.structs.replace(item, dialect="sglang") for item in laid_out().instances)
    with pytest.raises(UsageError, match="no engine of ours"):
        rehearsal.for_drills(msgspec.structs.replace(laid_out(), instances=others), StateFolder(tmp_path, "d"))


def test_what_does_not_run_was_not_started_for_drills(tmp_path: Path) -> None:
    """The file says failpoints, but no process runs with them: nothing may be broken."""
    folder = StateFolder(tmp_path, "d")
    with pytest.raises(Refused, match="prefill-0, decode-0 was not started for drills"):
        rehearsal.refuse_unless_for_drills(folder, rehearsal.for_drills(laid_out(), folder), "mass-abort")
