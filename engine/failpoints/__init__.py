"""Faults that can be switched on at run time, each a wedge from the field with a known cause (DESIGN section 6).

A failpoint is a method of a running instance that is replaced while it is on, together with the one defence that
would heal the fault. So the code it breaks holds no trace of it: an instance that was started without
`--enable-failpoints` never imports this package, and off costs nothing. One file a concern; each ends with its rows.

The faults need no flag where signals or flags of the engine cause them: silent-peer (SIGSTOP), crash-loop and oom
(SIGKILL, a memory limit), mismatch (another `--page-size` or `--dtype`).
"""

from __future__ import annotations

from engine.failpoints.parts import Parts
from engine.failpoints.registry import Failpoints

__all__ = ["Failpoints", "Parts"]
