"""What a machine needs that not every developer has: root, and some Debian packages."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def require(*programs: str) -> None:
    """Skip the test loudly where it cannot run; in CI, which installs all of it, fail."""
    missing = [program for program in programs if shutil.which(program) is None]
    why = f"not installed: {', '.join(missing)}" if missing else _powerless()
    if why is None:
        return
    message = (
        f"NOT TESTED: systemd and ssh, because {why} (apt-get install systemd-container dbus openssh-server iproute2)"
    )
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def _powerless() -> str | None:
    """Return what this user may not do, None where nothing is in the way."""
    if os.getuid() != 0:
        return "this user is not root"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        return "this root may not mount, as in a container without privileges"
    return None
