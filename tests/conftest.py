"""Fixtures for every test."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.tiny_model import tiny_model_dir

__all__ = ["smollm2_path", "tiny_model_dir"]

# Triton reads it when it is first imported, by whichever test (transformers does, too); compiled kernels: `make gpu`.
os.environ["TRITON_INTERPRET"] = "1"

# A shell that starts the suite in the background has SIGINT ignored, and so would every child that a test sends one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2_candidate() -> Path:
    """Return where the default model should be: PDCTL_TEST_MODEL, else pdctl's cache folder."""
    if named := os.environ.get("PDCTL_TEST_MODEL"):
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "pdctl" / "models" / SMOLLM2_FILE


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The GGUF of SmolLM2-135M-Instruct; absent, the test is skipped, or fails when CI=true."""
    path = smollm2_candidate()
    if not path.is_file():
        message = f"SmolLM2 is not at {path}: fetch it with `make model`, or set PDCTL_TEST_MODEL to the GGUF"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return path


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in words which peers nothing was tested against; a row of `s` is passed over."""
    skipped = [report for report in terminalreporter.stats.get("skipped", ()) if "peer" in report.keywords]
    reasons = {str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)}
    for reason in sorted(reasons):
        terminalreporter.write_line(f"WITHOUT A PEER: {reason.removeprefix('Skipped: ')}", yellow=True)
