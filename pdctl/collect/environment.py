"""Which variables of a process are kept: switches of engines and of the layers below. All others stay unread."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pdctl.evidence.credentials import MASK

KEPT = re.compile(
    r"(?:NCCL|UCX|NIXL|SGLANG|SGL|VLLM|DYN|MOONCAKE|MC|CUDA|OMP|TORCH|TRTLLM|PDCTL|PDENGINE|MLX5|GLOO)_\w+"
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.I)


def kept_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables worth keeping, those with secrets masked."""
    return {
        name: MASK.decode() if _SECRET.search(name) else value
        for name, value in sorted(environment.items())
        if KEPT.fullmatch(name)
    }
