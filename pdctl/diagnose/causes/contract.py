"""PD0201-PD0203, PD0205: the two sides disagree about the KV they exchange."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pdctl.diagnose.analyzer import (
    DEATHS,
    ENGINES,
    FAILURES,
    STALLS,
    Analyzer,
    Ask,
    Check,
    proves,
    requires,
    suggests,
)
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.self_report import refused_peers
from pdctl.diagnose.predicates import says
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event
from pdctl.evidence.records import Place, SourceFacts
from pdctl.evidence.server_info import ServerInfo

_LAYOUT = ("page", "block", "layout", "metadata buffers", "kv_cache_layout", "remote_block_size", "block_len")
_DTYPE = ("dtype", "data type")
_PARALLEL = ("tp", "tp_ratio", "remote_tp_size", "kv.ranks")
_VERSION = ("hash", "payload", "message tag", "version", "protocol", "model")


def _field_of(text: str) -> tuple[str, ...]:
    """Return the family of a mismatch's field."""
    lowered = text.lower()
    for family in (_DTYPE, _LAYOUT, _VERSION, _PARALLEL):
        if any(word in lowered for word in family):
            return family
    return _LAYOUT


def _logged(family: tuple[str, ...], *, must_still_tell: bool = True) -> Ask:
    def ask(case: Case, view: InstanceView) -> Answer:
        lines = (view.telling if must_still_tell else view.events)(Event.MISMATCH)
        found = [item for item in lines if _field_of(item.group("field")) is family]
        if found:
            return yes(f"{view.name}: {found[-1].text[:140]}", Kind.LOG, found[-1].place, len(found))
        return unknown(f"{view.name} names no such mismatch")

    return ask


def _refused(family: tuple[str, ...]) -> Ask:
    """Ask what /health of our own engine says of the peers that it refuses: field, own value, the peer's."""

    def ask(case: Case, view: InstanceView) -> Answer:
        for peer, why in refused_peers(view).items():
            if _field_of(why) is family:
                place = Place(f"{view.name}/http.toml", pointer="/health refused_peers")
                return yes(f"{view.name} refuses {peer}: {why}", Kind.HTTP, place)
        return unknown(f"{view.name} refuses nobody for such a field")

    return ask


def _contracts_differ(family: tuple[str, ...]) -> Ask:
    """Ask whether the contracts that both sides name differ in such a field: engines of ours refuse each other then."""

    def ask(case: Case, view: InstanceView) -> Answer:
        own = view.raw.server_info
        for peer in case.peers(view):
            other = peer.raw.server_info
            if own is None or other is None:
                continue
            for field in sorted(own.contract.keys() & other.contract.keys()):
                values = own.contract[field], other.contract[field]
                if values[0] != values[1] and _field_of(field) is family:
                    text = f"the contracts differ in {field}: {view.name} {values[0]}, {peer.name} {values[1]}"
                    return yes(text, Kind.HTTP, own.place(f"contract.{field}"))
        return unknown(f"no contract of {view.name} is known to differ in such a field")

    return ask


class _Setting(msgspec.Struct, frozen=True):
    """A value that both sides must have in common, and where it is told."""

    name: str
    told: Callable[[ServerInfo], str | None]
    kept: Callable[[SourceFacts], object]

    def of(self, view: InstanceView) -> tuple[str, Place] | None:
        """Return what the engine answers, else what its source facts say."""
        info, source = view.raw.server_info, view.raw.source
        if info is not None and (value := self.told(info)) is not None:
            return value, info.place(self.name)
        if source is not None and (fact := self.kept(source)) not in (None, ""):
            return str(fact), Place(f"{view.name}/source.toml", pointer=self.name)
        return None


def _differs(setting: _Setting) -> Ask:
    def ask(case: Case, view: InstanceView) -> Answer:
        own = setting.of(view)
        same: Answer | None = None
        for peer in case.peers(view):
            other = setting.of(peer)
            if own is None or other is None:
                continue
            text = f"{setting.name}: {view.name} {own[0]}, {peer.name} {other[0]}"
            if own[0] != other[0]:
                return yes(f"the sides differ in {text}", Kind.SOURCE, own[1])
            same = no(f"the sides agree in {text}", Kind.SOURCE, own[1])
        return same or unknown(f"{setting.name} of both sides is not known")

    return ask


def _sizes_differ(case: Case, view: InstanceView) -> Answer:
    own = view.raw.tp
    for peer in case.peers(view):
        if own is not None and peer.raw.tp is not None and own != peer.raw.tp:
            return yes(f"tensor-parallel sizes differ: {view.name} {own}, {peer.name} {peer.raw.tp}", Kind.TOPOLOGY)
    return unknown("tensor-parallel sizes are equal, or not known")


def _from_the_first(case: Case, view: InstanceView) -> Answer:
    first = next(iter(view.events(Event.MISMATCH, Event.ROOM_FAILED, Event.TRANSFER_FAILED)), None)
    if first is None or first.at is None:
        return unknown("no failure in the log")
    worked = [item for item in view.works if item.at and item.at < first.at]
    if len(worked) <= 1:
        return yes(f"{view.name} failed from its first request on", Kind.LOG, first.place)
    return unknown("it worked before the first failure")


def _named(family: tuple[str, ...]) -> tuple[Check, ...]:
    """Return what shows that the sides differ in this very field; a line that success followed proves it no more."""
    return (
        suggests("an engine named the field once", _logged(family, must_still_tell=False)),
        proves("an engine names the field", _logged(family)),
        proves("an engine refuses the other for the field", _refused(family)),
        proves("the contracts differ in the field", _contracts_differ(family)),
    )


def _named_or_differs(family: tuple[str, ...], differs: Ask) -> Ask:
    """Ask for a sign of this very field: failures alone fit every cause."""

    def any_sign(case: Case, view: InstanceView) -> Answer:
        signs = (ask(case, view) for ask in (*(check.ask for check in _named(family)), differs))
        return next((answer for answer in signs if answer.is_true), unknown("no sign of this field"))

    return any_sign


def _fails(case: Case, view: InstanceView) -> Answer:
    kinds = (*FAILURES, Symptom.WRONG_OUTPUT, Symptom.GONE, Symptom.CRASHED)
    seen = next((item for item in case.symptoms if item.symptom in kinds), None)
    if seen is None:
        return unknown("nothing fails")
    return yes(seen.text, Kind.LOG if seen.place is not None and "/log" in seen.place.file else Kind.METRICS)


def _never_passed(case: Case, view: InstanceView) -> Answer:
    """A mix of sizes that served requests is a mix that works."""
    first = _from_the_first(case, view)
    return first if first.is_true else unknown("whether requests passed before is not known")


_EXPLAINS = (*FAILURES, *STALLS, *DEATHS, Symptom.UNHEALTHY, Symptom.WRONG_OUTPUT)

_PAGE_SIZES = _differs(
    _Setting(
        "page_size",
        lambda info: info.page_size,
        lambda source: source.page_size or source.flag("--page-size") or source.flag("--block-size"),
    )
)
_KV_DTYPES = _differs(
    _Setting(
        "kv_cache_dtype",
        lambda info: info.kv_cache_dtype,
        lambda source: source.kv_dtype or source.flag("--kv-cache-dtype"),
    )
)


def _field(code: str, family: tuple[str, ...], differs: Ask, *signs: Check) -> Analyzer:
    """Return the cause that the sides have different values of one field."""
    return Analyzer(
        code=code,
        roles=ENGINES,
        inputs=(Kind.LOG, Kind.SOURCE, Kind.HTTP, Kind.METRICS, Kind.PROBE, Kind.PROCESS),
        explains=_EXPLAINS,
        checks=(
            requires("the field differs, or is named", _named_or_differs(family, differs)),
            *_named(family),
            suggests("the values differ", differs),
            suggests("requests fail", _fails),
            *signs,
        ),
    )


LAYOUT = _field("PD0201", _LAYOUT, _PAGE_SIZES, suggests("from the first request on", _from_the_first))
DTYPE = _field("PD0202", _DTYPE, _KV_DTYPES)
PARALLEL = Analyzer(
    code="PD0203",
    roles=ENGINES,
    inputs=(Kind.LOG, Kind.TOPOLOGY, Kind.METRICS, Kind.PROBE, Kind.PROCESS, Kind.HTTP),
    explains=_EXPLAINS,
    checks=(
        requires("requests never passed before", _never_passed),
        *_named(_PARALLEL),
        suggests("the sizes differ", _sizes_differ),
        suggests(
            "transfers fail",
            says(
                Event.TRANSFER_FAILED,
                Event.TRANSPORT_ERROR,
                Event.HANDSHAKE_FAILED,
                otherwise="no transfer fails",
            ),
        ),
        suggests("from the first request on", _from_the_first),
    ),
)
VERSION = Analyzer(
    code="PD0205",
    roles=ENGINES,
    inputs=(Kind.LOG, Kind.METRICS, Kind.PROBE, Kind.PROCESS, Kind.HTTP),
    explains=_EXPLAINS,
    checks=(
        *_named(_VERSION),
        suggests("from the first request on", _from_the_first),
    ),
)
ANALYZERS = (LAYOUT, DTYPE, PARALLEL, VERSION)
