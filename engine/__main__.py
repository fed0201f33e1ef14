"""`python -m engine`: start one instance. Exit codes: 0 left as asked, 1 died, 2 wrong flag, file or port."""

from __future__ import annotations

import sys

from engine.arguments import parse_config
from engine.errors import CheckpointError, ConfigError
from engine.launch import launch


def main() -> int:
    """Run an instance until it leaves; errors of the user become one line."""
    try:
        return launch(parse_config(sys.argv[1:]))
    except (ConfigError, CheckpointError) as error:
        print(f"engine: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
