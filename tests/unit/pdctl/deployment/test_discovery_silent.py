"""Discovery where one of the addresses hangs, or nobody listens."""

from __future__ import annotations

import pytest

from pdctl.deployment.discovery import discover
from pdctl.deployment.identify import Address
from pdctl.deployment.model import Role
from pdctl.errors import CannotTell, NotProven
from tests.fakes.bad_http import BadServer
from tests.fakes.families import sglang, smg


def test_one_that_hangs_is_no_fault_of_pdctl() -> None:
    """Who attaches wants all of them to answer: not proven, and the address is named."""
    with sglang("prefill") as prefill, BadServer({}) as hung:
        with pytest.raises(NotProven) as caught:
            discover([Address(prefill.url), Address(hung.url)])
        assert hung.url in caught.value.message


def test_one_that_hangs_belongs_to_what_is_looked_at() -> None:
    """Who diagnoses asks because something hangs: the role that was said, the family of the others, and a note."""
    with sglang("prefill") as prefill, BadServer({}) as hung:
        found = discover([Address(prefill.url), Address(hung.url, Role.DECODE)], must_answer=False)
        assert [(one.name, one.role, one.dialect, one.url) for one in found.deployment.instances] == [
            ("prefill-0", Role.PREFILL, "sglang", prefill.url),
            ("decode-0", Role.DECODE, "sglang", hung.url),
        ]
        assert any(hung.url in note for note in found.notes)


def test_one_that_hangs_and_whose_role_nobody_tells_has_to_be_named() -> None:
    """A guess would blame the wrong side."""
    with sglang("prefill") as prefill, BadServer({}) as hung:
        with pytest.raises(CannotTell) as caught:
            discover([Address(prefill.url), Address(hung.url)], must_answer=False)
        assert f"prefill={hung.url}" in (caught.value.hint or "")


def test_where_all_hang_nothing_is_known() -> None:
    """Neither family nor model."""
    with BadServer({}) as one, BadServer({}) as other:
        with pytest.raises(NotProven) as caught:
            discover([Address(item.url, Role.DECODE) for item in (one, other)], must_answer=False)
        assert one.url in caught.value.message
        assert other.url in caught.value.message


def test_a_worker_whose_address_is_none_costs_itself_only() -> None:
    """What a router lists is not ours: rows that name no address, and rows of another shape, are left out."""
    with sglang("prefill") as prefill, sglang("decode") as decode:
        rows: list[dict[str, object]] = [
            {"url": "http://[::1", "worker_type": "prefill"},
            {"url": "http://192.0.2.1:99999", "worker_type": "decode"},
            {"url": 5},
            {"url": decode.url, "worker_type": "decode"},
        ]
        with smg(rows) as router:
            found = discover([Address(prefill.url), Address(router.url)])
    assert [one.url for one in found.deployment.instances] == [prefill.url, router.url, decode.url]
