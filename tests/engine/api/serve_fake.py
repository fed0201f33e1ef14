"""`python -m engine` with the fake scheduler in place of the real one; same arguments, same exit codes."""

from __future__ import annotations

import sys
from pathlib import Path

from engine.arguments import parse_config
from engine.errors import CheckpointError, ConfigError
from engine.launch import launch

FAKE = (sys.executable, str(Path(__file__).with_name("fake_scheduler.py")))

if __name__ == "__main__":
    try:
        sys.exit(launch(parse_config(sys.argv[1:]), FAKE))
    except (ConfigError, CheckpointError) as error:
        print(f"engine: {error}", file=sys.stderr)
        sys.exit(2)
