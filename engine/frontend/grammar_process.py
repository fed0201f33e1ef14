"""Checks one grammar in a process of its own: `python -m engine.frontend.grammar_process`, grammar on stdin.

Writes what is wrong to stdout, nothing when it can be enforced. Some schemas of a few hundred bytes (`allOf` of twenty
patterns) keep llguidance 1.9.1 busy for ever, in a call that cannot be interrupted: so it is given CPU_S seconds.
"""

from __future__ import annotations

import resource
import sys

CPU_S = 1
MEMORY_BYTES = 2 << 30


def main() -> None:
    """Check, within limits that the kernel enforces."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from llguidance import LLMatcher

    sys.stdout.write(LLMatcher.validate_grammar(sys.stdin.read(), None))


if __name__ == "__main__":
    main()
