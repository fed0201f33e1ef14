"""Where an API key comes from: the `api_key_file` of the instance, else PDCTL_API_KEY; never a flag."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from pdctl.deployment.model import Deployment
from pdctl.errors import UsageError
from pdctl.evidence.credentials import ENVIRONMENT_KEY


def api_key(api_key_file: str | None, environment: Mapping[str, str] | None = None) -> str | None:
    """Return the key to send, or None.

    Raises UsageError when the file cannot be read, is empty, or holds what no header may carry.
    """
    if api_key_file is None:
        key = (os.environ if environment is None else environment).get(ENVIRONMENT_KEY, "").strip()
        return _checked(key, ENVIRONMENT_KEY) if key else None
    try:
        key = Path(api_key_file).expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read api_key_file {api_key_file}: {error}",
            "make it readable for this user, or remove the key from the deployment file",
        ) from error
    if not key:
        raise UsageError(f"api_key_file {api_key_file} is empty", "write the key into it, one line")
    return _checked(key, api_key_file)


def sent_keys(deployment: Deployment) -> tuple[str, ...]:
    """Return the keys that pdctl sends to these instances; one that cannot be read is not sent either."""
    keys: set[str] = set()
    for path in {instance.api_key_file for instance in deployment.instances}:
        with contextlib.suppress(UsageError):
            keys.add(api_key(path) or "")
    return tuple(keys - {""})


def _checked(key: str, source: str) -> str:
    if not key.isascii() or not key.isprintable():
        raise UsageError(f"the key in {source} has characters that no HTTP header may carry")
    return key
