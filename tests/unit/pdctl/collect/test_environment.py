"""Of a process's environment only switches are kept."""

from __future__ import annotations

from pdctl.collect.environment import kept_environment


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
