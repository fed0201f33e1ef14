"""Credentials are masked; all else stays byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.collect.secrets import kept_environment, scrub, scrub_argv


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b"api_key='sk-1'", b'api_key="***"'),
        (b'{"api_key": "sk-1", "x": 1}', b'{"api_key": "***", "x": 1}'),
        (b'{"admin_api_key":null}', b'{"admin_api_key":null}'),
        (b"api_key=None, port=1", b"api_key=None, port=1"),
        (b"Authorization: Bearer abcdefgh", b"Authorization: Bearer ***"),
        (b"https://user:pass@host/x", b"https://***@host/x"),
        (b"HF_TOKEN=hf_abc password: hunter2", b'HF_TOKEN="***" password: "***"'),
        (b"#token: 512, token usage: 0.5", b"#token: 512, token usage: 0.5"),
        (b"KeyError: 'room'", b"KeyError: 'room'"),
        (b"http://10.0.0.1:30000/health", b"http://10.0.0.1:30000/health"),
    ],
)
def test_text(text: bytes, wanted: bytes) -> None:
    """Names of secrets, bearer tokens and passwords in addresses lose their values; look-alikes keep theirs."""
    assert scrub(text) == wanted


@given(st.binary(max_size=300))
def test_scrubbing_twice_changes_nothing_more(data: bytes) -> None:
    """What was cleaned is clean, whatever the bytes."""
    assert scrub(scrub(data)) == scrub(data)


def test_command_lines() -> None:
    """Values of secret flags are masked in both spellings; files of keys and all else stay."""
    argv = ["python", "-m", "sglang.launch_server", "--api-key", "sk-1", "--admin-api-key=sk-2", "--api-key-file", "/k"]
    assert scrub_argv([*argv, "--tokenizer-path", "t"]) == [
        *("python", "-m", "sglang.launch_server", "--api-key", "***", "--admin-api-key=***", "--api-key-file", "/k"),
        *("--tokenizer-path", "t"),
    ]


def test_environment() -> None:
    """Only switches of engines and their layers are kept, and no key among them."""
    given_environment = {
        "UCX_TLS": "tcp",
        "HOME": "/root",
        "AWS_SECRET": "x",
        "VLLM_API_KEY": "k",
        "OMP_NUM_THREADS": "1",
    }
    assert kept_environment(given_environment) == {"OMP_NUM_THREADS": "1", "UCX_TLS": "tcp", "VLLM_API_KEY": "***"}
