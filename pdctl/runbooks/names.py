"""A runbook's stand-ins (PREFILL, DECODE:PORT, ...) -> the names and addresses of a deployment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.errors import UsageError

_ROLES = {"PREFILL": Role.PREFILL, "DECODE": Role.DECODE, "ROUTER": Role.ROUTER}
_CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.M | re.S)


def stand_ins(deployment: Deployment, subjects: Sequence[str]) -> dict[str, Instance]:
    """Return stand-in -> instance: of a role the one that is the subject, else the first; INSTANCE is the subject.

    Raises UsageError for a subject that the deployment does not have.
    """
    known = {item.name: item for item in deployment.instances}
    for name in subjects:
        if name not in known:
            raise UsageError(f"there is no instance {name!r}", f"there are {', '.join(known)}")
    ordered = [*(known[name] for name in subjects), *deployment.instances]
    found = {
        word: next(item for item in ordered if item.role is role)
        for word, role in _ROLES.items()
        if any(item.role is role for item in ordered)
    }
    return {**found, "INSTANCE": ordered[0]} if ordered else found


def filled(markdown: str, instances: Mapping[str, Instance]) -> str:
    """Return the runbook with the stand-ins of its commands replaced; its prose stays as it is."""
    return _CODE.sub(lambda match: _fill(match[0], instances), markdown)


def _fill(text: str, instances: Mapping[str, Instance]) -> str:
    for word, instance in instances.items():
        place = urlsplit(instance.url)
        text = re.sub(rf"\b{word}:PORT\b", place.netloc, text)
        text = re.sub(rf"\b{word}\b", instance.name, text)
    if "INSTANCE" in instances:
        place = urlsplit(instances["INSTANCE"].url)
        text = re.sub(r"\bHOST:PORT\b", place.netloc, text)
        text = re.sub(r"(?<=:)PORT\b", str(place.port or ""), text)
    return text
