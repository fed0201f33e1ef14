"""Runbooks with the names of a deployment in their commands."""

from __future__ import annotations

import re

import pytest

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.diagnose.catalogue import CATALOGUE, Code
from pdctl.errors import UsageError
from pdctl.runbooks import read_runbook
from pdctl.runbooks.names import filled, stand_ins
from tests.command_lines import calls_in, parse

_DEPLOYMENT = Deployment(
    name="default",
    model="/models/m",
    instances=(
        Instance(name="prefill-0", role=Role.PREFILL, dialect="sglang", url="http://192.0.2.1:30000"),
        Instance(name="decode-0", role=Role.DECODE, dialect="sglang", url="http://192.0.2.2:30002"),
        Instance(name="decode-1", role=Role.DECODE, dialect="sglang", url="http://192.0.2.3:30002"),
        Instance(name="router", role=Role.ROUTER, dialect="smg", url="http://192.0.2.4:30001"),
    ),
)


def test_stand_ins_become_names_and_addresses_in_commands_only() -> None:
    """Prose that speaks of PREFILL in general stays."""
    text = "PREFILL waits.\n```\npdctl stacks PREFILL\ncurl http://DECODE:PORT/health\n```\nSee `pdctl logs ROUTER`.\n"
    assert filled(text, stand_ins(_DEPLOYMENT, [])) == (
        "PREFILL waits.\n```\npdctl stacks prefill-0\ncurl http://192.0.2.2:30002/health\n```\n"
        "See `pdctl logs router`.\n"
    )


def test_the_subject_is_the_instance_and_the_one_of_its_role() -> None:
    """Whoever is diagnosed stands in the commands, its peer beside it."""
    text = "`pdctl restart PREFILL DECODE` `pdctl stacks INSTANCE`"
    assert filled(text, stand_ins(_DEPLOYMENT, ["decode-1"])) == (
        "`pdctl restart prefill-0 decode-1` `pdctl stacks decode-1`"
    )


def test_an_unknown_subject_is_a_usage_error() -> None:
    """With the names there are."""
    with pytest.raises(UsageError) as caught:
        stand_ins(_DEPLOYMENT, ["decode-7"])
    assert "decode-1" in (caught.value.hint or "")


@pytest.mark.parametrize("code", CATALOGUE, ids=lambda code: code.code)
def test_every_filled_runbook_has_commands_that_parse_and_no_stand_in_left(code: Code) -> None:
    """As a person pastes them."""
    text = filled(read_runbook(code), stand_ins(_DEPLOYMENT, ["decode-1"]))
    for call in calls_in(text):
        parse(call)
    fences = "".join(re.findall(r"^```.*?^```", text, re.M | re.S))
    assert not re.search(r"\b(PREFILL|DECODE|ROUTER|INSTANCE)\b", fences)
