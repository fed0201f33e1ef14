"""Frames: whatever bytes come, `decode` answers; whatever we write, it reads."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import PROTOCOL_VERSION
from engine.messages import TokenLogprob
from engine.transfer.interface import FirstToken
from engine.transfer.protocol import frames
from engine.transfer.protocol.frames import MAX_FRAME_BYTES, BadFrame, Envelope, Kind, decode, encode

VERSION = bytes([PROTOCOL_VERSION])
rooms = st.integers(0, 2**63 - 1)
texts = st.text(max_size=20)
small = st.integers(0, 2**31)
first_tokens = st.builds(
    FirstToken,
    token_id=small,
    logprob=st.none() | st.builds(TokenLogprob, token_id=small, logprob=st.floats(-50, 0), top=st.just([])),
    finish=st.none() | st.sampled_from(["stop", "length"]),
    cached_tokens=small,
)
geometries = st.builds(
    frames.Geometry,
    address=st.integers(0, 2**64 - 1),
    layers=small,
    kv_heads=small,
    pages=small,
    page_size=small,
    head_dim=small,
    dtype=texts,
    item_bytes=small,
)
pools = st.builds(
    frames.RankPool, first_head=small, geometry=geometries, nixl_metadata=st.binary(max_size=50), source=small
)
bodies = st.one_of(
    st.builds(
        frames.Hello,
        instance=texts,
        role=texts,
        contract=st.dictionaries(texts, texts, max_size=3),
        ranks=st.lists(pools, max_size=3),
        source=small,
    ),
    st.builds(frames.Offer, room=rooms, prompt_tokens=small, prompt_hash=st.binary(max_size=16), prefix_tokens=small),
    st.builds(frames.Refused, room=rooms, reason=texts, detail=texts),
    st.builds(
        frames.Ready,
        room=rooms,
        first_page=small,
        pages=st.lists(small, max_size=5),
        checksums=st.lists(st.binary(max_size=20), max_size=3),
        last=st.booleans(),
        first_token=st.none() | first_tokens,
    ),
    st.builds(frames.Canary, nonce=st.binary(max_size=16)),
    st.builds(frames.CanaryReady, nonce=st.binary(max_size=16), page=small),
    st.builds(frames.CanaryRead, nonce=st.binary(), ok=st.booleans(), seconds=st.floats(0, 10), detail=texts),
    st.builds(frames.Commit, room=rooms),
    st.builds(frames.Committed, room=rooms),
    st.builds(frames.Gone, room=rooms, reason=texts, detail=texts),
    st.builds(frames.Failed, room=rooms, reason=texts, detail=texts),
    st.builds(frames.Abort, room=rooms, reason=texts, detail=texts),
    st.builds(frames.Ack, room=rooms, of=texts, index=small),
    st.builds(frames.Nack, room=st.none() | rooms, of=texts, reason=texts),
    st.builds(frames.Heartbeat, loop_tick=small, longest_step_s=st.floats(0, 100)),
    st.builds(frames.Goodbye, detail=texts),
)
envelopes = st.builds(Envelope, src=texts, dst=texts, rank=st.integers(0, 64), body=bodies)


@given(envelopes)
def test_what_is_written_is_read(envelope: Envelope) -> None:
    """Encoding and decoding gives the same frame."""
    assert decode(encode(envelope)) == envelope


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_raise(data: bytes) -> None:
    """Garbage becomes a `BadFrame` with a reason."""
    answer = decode(data)
    assert isinstance(answer, Envelope) or answer.why


@given(envelopes, st.data())
@settings(max_examples=300)
def test_damaged_frames_never_raise(envelope: Envelope, data: st.DataObject) -> None:
    """A frame with a byte changed or its end cut off is a frame or a `BadFrame`."""
    written = bytearray(encode(envelope))
    at = data.draw(st.integers(0, len(written) - 1))
    written[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(written)))
    assert isinstance(decode(bytes(written[:cut])), Envelope | BadFrame)


def test_deep_nesting_does_not_raise() -> None:
    """Nested arrays deeper than any stack are a bad frame."""
    assert isinstance(decode(VERSION + b"\x91" * 100_000), BadFrame)
    outer = b"\x94\xa1a\xa1b\x00" + b"\x91" * 100_000 + b"\x00"
    assert isinstance(decode(VERSION + outer), BadFrame)


def test_another_version_is_named() -> None:
    """The reason says which version came and which is ours."""
    answer = decode(bytes([PROTOCOL_VERSION + 1]) + b"\x90")
    assert isinstance(answer, BadFrame)
    assert answer.why == f"protocol version {PROTOCOL_VERSION + 1}, ours is {PROTOCOL_VERSION}"


def test_frames_over_the_limit_are_not_parsed() -> None:
    """A frame longer than the limit is refused by its length."""
    answer = decode(VERSION + bytes(MAX_FRAME_BYTES))
    assert isinstance(answer, BadFrame)
    assert str(MAX_FRAME_BYTES + 1) in answer.why


def test_an_unknown_kind_is_told_from_garbage() -> None:
    """A newer peer's frame names its kind, so that it can be answered with a NACK."""
    body = msgspec.msgpack.encode(["a", "b", 0, {"type": "telepathy", "room": 1}])
    answer = decode(VERSION + body)
    assert isinstance(answer, BadFrame)
    assert answer.unknown_kind == "telepathy"


def test_a_known_kind_with_wrong_fields_is_garbage() -> None:
    """A COMMIT without a room is no unknown kind."""
    body = msgspec.msgpack.encode(["a", "b", 0, {"type": "commit"}])
    answer = decode(VERSION + body)
    assert isinstance(answer, BadFrame)
    assert answer.unknown_kind is None


def test_every_kind_has_a_frame() -> None:
    """The names in metrics are the tags on the wire."""
    kinds = {cls.__struct_config__.tag for cls in frames.Frame.__args__}
    assert kinds == {kind.value for kind in Kind}
