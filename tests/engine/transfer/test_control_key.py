"""The control channel with keys: holders of the deployment's key are served, nobody else gets a frame through."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq

from engine.transfer.control.control_key import ControlKey
from engine.transfer.interface import Committed, Failed, Landed, Paired, WantPages
from tests.engine.transfer.transfer_sides import PROMPT, SOURCE, TARGET, TOKEN, Decode, Prefill, Registry, eventually

KEY = zmq.curve_keypair()[1].decode()
OTHER_KEY = zmq.curve_keypair()[1].decode()


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[Prefill, Registry]]:
    """A prefill that asks for the key."""
    registry, prefill = Registry(), Prefill(control_key=KEY)
    registry.publish(prefill)
    yield prefill, registry
    prefill.stop()
    registry.stop()


def test_a_holder_of_the_key_is_served(guarded: tuple[Prefill, Registry]) -> None:
    """A whole transfer passes over the encrypted channel."""
    prefill, registry = guarded
    decode = Decode(registry.address, control_key=KEY)
    try:
        prefill.announce("a", 1, PROMPT)
        decode.open("a", 1, PROMPT)
        prefill.await_event(Paired, "a")
        prefill.fill(SOURCE, seed=1)
        prefill.transfer.ready("a", 0, SOURCE, TOKEN)
        decode.await_event(WantPages, "a")
        decode.transfer.grant("a", TARGET)
        decode.await_event(Landed, "a")
        prefill.await_event(Committed, "a")
        assert decode.holds(TARGET, seed=1)
    finally:
        decode.stop()


@pytest.mark.parametrize("key", [OTHER_KEY, None], ids=["another key", "no key"])
def test_a_stranger_is_kept_out_and_told_why(guarded: tuple[Prefill, Registry], key: str | None) -> None:
    """No frame of it reaches prefill; its own rooms fail with the reason."""
    prefill, registry = guarded
    heard = prefill.transfer._control.counters.frames.total()
    decode = Decode(registry.address, control_key=key)
    try:
        decode.open("b", 2, PROMPT)
        failed = decode.await_event(Failed, "b")
        assert "refuses our control key (--control-key-file)" in failed.detail
        assert prefill.transfer._control.counters.frames.total() == heard
    finally:
        decode.stop()


def strangers(prefill: Prefill) -> float:
    """Return what the metrics say of connections without the key."""
    return next(sample.value for sample in prefill.transfer.samples() if sample.name == "control_strangers_total")


def test_who_knows_the_public_key_alone_is_kept_out(guarded: tuple[Prefill, Registry]) -> None:
    """The public key lets one speak to prefill in cipher, not come in."""
    prefill, _ = guarded
    control = prefill.transfer._control
    before = strangers(prefill)
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.setsockopt(zmq.LINGER, 0)
        public, secret = zmq.curve_keypair()
        pair = ControlKey.of(KEY)
        assert pair is not None
        stranger.curve_publickey, stranger.curve_secretkey, stranger.curve_serverkey = public, secret, pair.public
        stranger.connect(control.peers.channel.endpoint)
        eventually(lambda: strangers(prefill) > before)
    assert not control.peers.known


@pytest.mark.parametrize("text", ["", "short", "x" * 41, "\u00e4" * 40])
def test_what_is_no_key_is_said(text: str) -> None:
    """A file with something else is refused at the start."""
    with pytest.raises(ValueError, match="not a CURVE secret key"):
        ControlKey.of(text)
