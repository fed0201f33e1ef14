"""What every engine or router family is described by: where to look, and what may be done to it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from pdctl.dialects.answers import Answers, Field, Label, Scalar, follow, has_series, json_value, samples
from pdctl.dialects.versions import VersionRange


class Kind(StrEnum):
    ENGINE = "engine"
    ROUTER = "router"


class Support(StrEnum):
    """What is known of an ability. Unknown counts as no wherever it decides."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Capability(StrEnum):
    """What a family survives."""

    ABORT_SAFE = "abort_safe"
    """A client that leaves harms nobody else."""
    SURVIVES_PREFILL_RESTART = "survives_prefill_restart"
    """Decode goes on when prefill alone is restarted."""
    SURVIVES_DECODE_RESTART = "survives_decode_restart"
    """Prefill goes on when decode alone is restarted."""


class Claim(msgspec.Struct, frozen=True):
    """One row of the capability table. The first row that fits decides."""

    capability: Capability
    support: Support
    source: str
    versions: VersionRange = VersionRange()
    transfer: str | None = None
    """Only with this transfer backend; None: with any."""


class Ask(StrEnum):
    """How a probe asks for text."""

    GENERATE = "generate"
    """POST /generate, and prefill scores the tokens afterwards."""
    CHAT = "chat"
    """POST /v1/chat/completions with a question whose answer is known."""


class Pairing(StrEnum):
    """How a request without a router reaches both legs of a pair."""

    ROOM = "room"
    """The same body with bootstrap_host, bootstrap_port and bootstrap_room to both legs at once."""
    HANDOVER = "handover"
    """First prefill, then decode with the kv_transfer_params that prefill answered."""
    NONE = "none"
    """Only through its own frontend."""


class Sign(msgspec.Struct, frozen=True):
    """One thing that only this family answers: a JSON key, a text in the body, or a metric series."""

    path: str
    pointer: tuple[str | int, ...] = ()
    text: bytes = b""
    series: str = ""

    def seen(self, answers: Answers) -> bool:
        """Return whether the answers show it."""
        body = answers.get(self.path)
        if body is None:
            return False
        if self.series:
            return has_series(body, self.series)
        return self.text in body if self.text else json_value(body, self.pointer) is not None


class Ratio(msgspec.Struct, frozen=True):
    """Where the used share of KV memory (0..1) stands: a gauge, two numbers of a JSON answer, or one of each rank."""

    path: str
    series: str = ""
    used: tuple[str | int, ...] = ()
    total: tuple[str | int, ...] = ()
    ranks: tuple[str | int, ...] = ()
    """Way to a list with one entry a rank, which has the share under `share`."""
    share: tuple[str | int, ...] = ()

    def find(self, answers: Answers) -> float | None:
        """Return the highest share the answers show, or None."""
        body = answers.get(self.path, b"")
        if self.series:
            return max((sample.value for sample in samples(body, self.series)), default=None)
        if self.share:
            ranks = json_value(body, self.ranks)
            shares = [follow(rank, self.share) for rank in ranks] if isinstance(ranks, list) else []
            return max((float(share) for share in shares if isinstance(share, (int, float))), default=None)
        used, total = json_value(body, self.used), json_value(body, self.total)
        if isinstance(used, (int, float)) and isinstance(total, (int, float)) and total > 0:
            return used / total
        return None


Place = Field | Label


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """A family as tables."""

    name: str
    kind: Kind
    signs: tuple[Sign, ...]
    """Any one of them is enough."""
    version: tuple[Place, ...] = ()
    role: tuple[Place, ...] = ()
    roles: dict[str, str] = {}
    """Word of the family -> role of `pdctl.deployment.model`; a word that is missing is unknown."""
    roles_alone: dict[str, str] = {}
    """Word -> its role where no instance of the deployment is a prefill."""
    model: tuple[Place, ...] = ()
    bootstrap_port: tuple[Place, ...] = ()
    tp: tuple[Place, ...] = ()
    transfer: tuple[Place, ...] = ()
    """Transfer backend, where capabilities depend on it."""
    kv_use: tuple[Ratio, ...] = ()
    ask: Ask = Ask.CHAT
    pairing: Pairing = Pairing.NONE
    abort_path: str = ""
    """Where `{"abort_all": true}` ends every request, if anywhere."""
    claims: tuple[Claim, ...] = ()

    def recognises(self, answers: Answers) -> bool:
        """Return whether the answers are this family's."""
        return any(sign.seen(answers) for sign in self.signs)

    def capability(
        self, capability: Capability, version: str | None, transfer: str | None = None
    ) -> tuple[Support, str]:
        """Return what is known of an ability, and the source that says so."""
        for claim in self.claims:
            fits = claim.transfer is None or claim.transfer == transfer
            if claim.capability == capability and fits and claim.versions.holds(version):
                return claim.support, claim.source
        return Support.UNKNOWN, "nothing is known of this version"

    def paths(self) -> tuple[str, ...]:
        """Return every endpoint these tables look at."""
        places = (*self.version, *self.role, *self.model, *self.bootstrap_port, *self.tp, *self.transfer)
        every = [item.path for item in (*self.signs, *places, *self.kv_use)]
        return tuple(dict.fromkeys(every))


def first(places: tuple[Place, ...], answers: Answers) -> Scalar | None:
    """Return the first value that one of the places has."""
    return next((value for place in places if (value := place.find(answers)) not in (None, "")), None)
