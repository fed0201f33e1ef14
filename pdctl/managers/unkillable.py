"""What no manager can stop."""

from __future__ import annotations

from pdctl.errors import PdctlError


class Unkillable(PdctlError):
    """A process was seen to survive SIGKILL: it hangs in the kernel, and nothing may be started beside it."""
