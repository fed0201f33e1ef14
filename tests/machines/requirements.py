"""What a machine needs that not every developer has: root, and some Debian packages."""

from __future__ import annotations

import os
import shutil

import pytest


def require(*programs: str) -> None:
    """Skip the test loudly where it cannot run; in CI, which installs all of it, fail."""
    missing = [program for program in programs if shutil.which(program) is None]
    why = f"not installed: {', '.join(missing)}" if missing else "" if os.getuid() == 0 else "this user is not root"
    if not why:
        return
    message = f"NOT TESTED: systemd and ssh, because {why} (apt-get install systemd-container dbus openssh-server)"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
