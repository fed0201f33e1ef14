"""`python -m pdctl`, the same as `pdctl`."""

import sys

from pdctl.cli import main

sys.exit(main())
