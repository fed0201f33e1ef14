"""From what the user names to where requests go: a deployment, or the URL of any OpenAI-compatible endpoint."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from pdctl.collect.credentials import api_key
from pdctl.collect.http import InstanceClient, Timeouts, tls_context
from pdctl.deployment import rehearsal, state
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.deployment.state import StateFolder
from pdctl.errors import CannotTell, Refused
from pdctl.load.canaries import Canaries, KnownAnswers, ScoredAnswers
from pdctl.load.guard import Target
from pdctl.load.wire import Endpoint

_ASK = Timeouts(connect_s=3.0, read_s=5.0, total_s=8.0)


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """Where to, what it is called, and how answers are checked."""

    target: Target
    endpoint: Endpoint
    scorer: Instance | None
    """A prefill of ours that scores answers; None: known answers have to do."""

    def canaries(self) -> Canaries:
        """Return what makes canaries for this target; close it afterwards."""
        return KnownAnswers() if self.scorer is None else ScoredAnswers(self.scorer)


def aimed(url: str | None, name: str | None, file: Path | None, model: str | None) -> Aim:
    """Find the target. Raises CannotTell where there is none or it does not tell its model, UsageError."""
    if url is not None:
        return _at_url(url.rstrip("/"), model)
    root = state.state_root()
    return _at_deployment(state.chosen(name, file, root), root, model)


def _at_deployment(deployment: Deployment, root: Path, model: str | None) -> Aim:
    entry = deployment.router or next(iter(deployment.of_role(Role.UNIFIED)), None)
    if entry is None:
        raise CannotTell(f"{deployment.name!r} has no router that a client could ask", "name a URL: pdctl load URL")
    ours = [item for item in deployment.of_role(Role.PREFILL) if item.dialect == "pdctl"]
    return Aim(
        target=Target(name=deployment.name, is_for_drills=_is_for_drills(deployment, root)),
        endpoint=Endpoint(
            url=entry.url,
            model=model or deployment.model,
            key=api_key(entry.api_key_file),
            tls=tls_context(entry.ca_file) if entry.url.startswith("https") else None,
        ),
        scorer=ours[0] if ours else None,
    )


def _is_for_drills(deployment: Deployment, root: Path) -> bool:
    try:
        rehearsal.refuse_unless_for_drills(StateFolder(root, deployment.name), deployment, "this load")
    except Refused:
        return False
    return True


def _at_url(url: str, model: str | None) -> Aim:
    key = api_key(None)
    return Aim(
        target=Target(name=urlsplit(url).netloc or url, is_for_drills=False),
        endpoint=Endpoint(
            url=url,
            model=model or _served(url, key),
            key=key,
            tls=tls_context(None) if url.startswith("https") else None,
        ),
        scorer=None,
    )


class _Model(msgspec.Struct, frozen=True):
    id: str


class _Models(msgspec.Struct, frozen=True):
    data: list[_Model]


def _served(url: str, key: str | None) -> str:
    with InstanceClient(url, key=key, timeouts=_ASK) as client:
        answer = client.get("/v1/models")
    try:
        return msgspec.json.decode(answer.body, type=_Models).data[0].id
    except (msgspec.DecodeError, IndexError):
        raise CannotTell(f"{answer.describe()}, and so the model's name is not known", "give it with --model") from None
