"""Credentials are masked; all else stays byte for byte."""

from __future__ import annotations

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.evidence import toml_text
from pdctl.evidence.credentials import Credentials, argv_without

PEM_LINE = b"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ\n"
BEGIN, END = b"-----BEGIN PRIVATE KEY-----\n", b"-----END PRIVATE KEY-----"


def without(data: bytes) -> bytes:
    return Credentials().without(data)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b"api_key='sk-1'", b"api_key='***'"),
        (b'{"api_key": "sk-1", "x": 1}', b'{"api_key": "***", "x": 1}'),
        (b'{"password": "a\\"b c", "x": 1}', b'{"password": "***", "x": 1}'),
        (b'{"password": "ab\\\\", "x": 1}', b'{"password": "***", "x": 1}'),
        (b'"{\\"password\\": \\"a b\\", \\"x\\": 1}"', b'"{\\"password\\": \\"***\\", \\"x\\": 1}"'),
        (b"api_keys=['one', 'two'], tp=1", b"api_keys=[], tp=1"),
        (b'api_key: Some("a b"), per_token: Some(23040)', b'api_key: Some("***"), per_token: Some(23040)'),
        (b"password: 'cut he", b"password: '***"),
        (b"Authorization: Bearer abcdefgh", b"Authorization: Bearer ***"),
        (b"authorization: token alllowercase", b"authorization: token ***"),
        (b"Cookie: a=1; session=topsecret", b"Cookie: ***"),
        (b"\x1b[3mapi_key\x1b[0m\x1b[2m=\x1b[0mabc port=1", b"\x1b[3mapi_key\x1b[0m\x1b[2m=\x1b[0m*** port=1"),
        (b"https://user:pass@host/x", b"https://***@host/x"),
        (b"pulling https://user:pas", b"pulling https://***"),
        (b"HF_TOKEN=hf_abc password: hunter2", b"HF_TOKEN=*** password: ***"),
        (b"key " + BEGIN + PEM_LINE * 3 + END + b" ok", b"key *** ok"),
        (PEM_LINE * 3 + END + b"\nready", b"***\nready"),
        (b"x " + BEGIN + PEM_LINE * 2 + b"[2026-06-19] ready", b"x ***[2026-06-19] ready"),
    ],
)
def test_credentials_are_masked(text: bytes, wanted: bytes) -> None:
    """Whatever introduces one, quoted, nested, coloured, over several lines or cut at either end."""
    assert without(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        b'{"admin_api_key":null}',
        b"api_key=None, port=1",
        b"#token: 512, token usage: 0.5",
        b"KeyError: 'room'",
        b"http://10.0.0.1:30000/health",
        b"listening on http://10.0.0.1:30000",
        b"a bad token provided, basic settings, gen throughput (token/s): 30.25",
        b'{"first_token": 1764438181.125, "next_token": 4711}',
        b"std::token::x disk-abcdefghijklmnopqrst",
    ],
)
def test_look_alikes_stay(text: bytes) -> None:
    """Counters, times, addresses and words of everyday."""
    assert without(text) == text


@given(st.binary(max_size=300))
def test_masking_twice_changes_nothing_more(data: bytes) -> None:
    """What was cleaned is clean, whatever the bytes."""
    assert without(without(data)) == without(data)


@given(
    st.sampled_from(["token", "password", "api_key", "authorization", "x"]),
    st.one_of(
        st.text(), st.integers(-(10**15), 10**15), st.floats(allow_nan=False, allow_infinity=False), st.booleans()
    ),
)
def test_documents_stay_readable(key: str, value: object) -> None:
    """JSON and TOML parse after masking, whatever the value of a secret's name is."""
    json.loads(without(json.dumps({key: value, "y": 1}).encode()))
    tomllib.loads(without(toml_text.document({key: value, "y": 1})).decode())


def test_command_lines() -> None:
    """Values of secret flags are masked in both spellings; files of keys and all else stay."""
    argv = ["python", "-m", "sglang.launch_server", "--api-key", "s 1", "--admin-api-key=s 2", "--api-key-file", "/k"]
    assert argv_without([*argv, "--tokenizer-path", "t"]) == [
        *("python", "-m", "sglang.launch_server", "--api-key", "***", "--admin-api-key=***", "--api-key-file", "/k"),
        *("--tokenizer-path", "t"),
    ]
