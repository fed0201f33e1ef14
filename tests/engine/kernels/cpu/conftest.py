"""The compiled step, built once for all tests into the user's cache."""

from __future__ import annotations

import pytest

from engine.kernels.cpu.build import BuildError, built_library


@pytest.fixture(autouse=True, scope="package")
def library() -> None:
    """Compile, or skip on a CPU that the step is not for; a missing compiler is a failure."""
    try:
        built_library()
    except BuildError as error:
        if "needs a CPU with" in str(error) or "immintrin.h" in str(error):
            pytest.skip(str(error))
        raise
