"""PD0802: requests go where they cannot be served, or past prefill."""

from __future__ import annotations

import re

from pdctl.diagnose.analyzer import EVERYONE, Analyzer, proves, suggests
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.causes.registries import EXPLAINS
from pdctl.diagnose.hidden import bypassed, prefill_unused
from pdctl.diagnose.limits import LIMITS
from pdctl.diagnose.predicates import logged
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Counter, Event
from pdctl.evidence.records import Place
from pdctl.evidence.urls import host_of, port_of


def _dials_elsewhere(case: Case, view: InstanceView) -> Answer:
    """It is refused at an address where no worker listens, while the worker on that host listens elsewhere."""
    for item in view.telling(Event.ROUTER_UPSTREAM, Event.ROUTED):
        url = item.group("url") or _address(item.text)
        worker = (
            next((one for one in case.engines if one.raw.url and host_of(one.raw.url) == host_of(url)), None)
            if url
            else None
        )
        if (
            worker is None
            or port_of(url) is None
            or any(port_of(one.raw.url) == port_of(url) for one in case.views if host_of(one.raw.url) == host_of(url))
        ):
            continue
        if port_of(url) == worker.raw.bootstrap_port or worker.is_alive is False:
            continue
        return yes(
            f"{view.name} dials {url}, {worker.name} listens on {port_of(worker.raw.url)}",
            Kind.LOG,
            item.place,
            port_of(url),
        )
    return unknown("no request is known to go to a wrong address")


def _address(text: str) -> str:
    found = re.search(r"(\d+\.\d+\.\d+\.\d+:\d+)(?=\D{0,40}(?:refused|connect))", text)
    return found[1] if found else ""


def _configured_elsewhere(case: Case, view: InstanceView) -> Answer:
    flags = view.raw.source.flags if view.raw.source else ()
    targets = [
        flags[index + 1]
        for index, word in enumerate(flags)
        if word in ("--prefill", "--decode") and index + 1 < len(flags)
    ]
    known = {(host_of(one.raw.url), port_of(one.raw.url)) for one in case.engines if one.raw.url}
    if not targets or not known:
        return unknown("the router's targets are not known")
    for target in targets:
        if (host_of(target), port_of(target)) not in known and host_of(target) in {host for host, _ in known}:
            return yes(
                f"{view.name} is told {target}, where no worker listens",
                Kind.SOURCE,
                Place(f"{view.name}/source.toml"),
            )
    return unknown("the router's targets are workers")


def _decode_alone(case: Case, view: InstanceView) -> Answer:
    """Decode asks for KV of the other side and never gets any; prefill is not asked."""
    for decode in case.decodes:
        found = bypassed(decode)
        if found is None:
            continue
        still = [
            one for one in case.prefills if (rise := one.rise(Counter.REQUESTS_DONE)) is not None and rise.value == 0
        ]
        idle = [one for one in case.prefills if one.total(Counter.REQUESTS_DONE) is not None]
        if (still or not idle) and all(one.is_alive is not False for one in case.prefills):
            return yes(
                f"{decode.name} asked for {found[0]:g} tokens of prefill's KV and got none; prefill has no request",
                Kind.METRICS,
                value=found[0],
            )
    alone = prefill_unused(case.prefills, case.decodes)
    if alone is not None:
        return yes(f"decode finished {alone:g} requests, prefill was asked for none", Kind.METRICS, value=alone)
    return unknown("decode is not known to work alone")


def _decided_alone(case: Case, view: InstanceView) -> Answer:
    alone, both = view.rise(Counter.DECODE_ONLY), view.rise(Counter.PREFILL_AND_DECODE)
    if alone is None:
        return unknown("no scheduler tells what it decided")
    if not case.prefills or any(one.is_alive is False or not _asked_for_none(one) for one in case.prefills):
        return unknown("there is no living, unused prefill")
    text = f"{view.name} decided {alone.value:g} times for decode alone, {both.value if both else 0:g} times for both"
    if alone.value >= LIMITS.bypass_requests and (both is None or both.value == 0):
        return yes(text, Kind.METRICS, alone.place, alone.value)
    return no(text, Kind.METRICS, alone.place, alone.value)


def _asked_for_none(view: InstanceView) -> bool:
    rise = view.rise(Counter.REQUESTS_DONE)
    return rise is None or rise.value == 0


def _skips(case: Case, view: InstanceView) -> Answer:
    return logged(view, Event.PREFILL_SKIPPED, what="a skipped prefill")


ANALYZER = Analyzer(
    code="PD0802",
    roles=EVERYONE,
    inputs=(Kind.LOG, Kind.SOURCE, Kind.METRICS, Kind.HTTP, Kind.PROCESS, Kind.TOPOLOGY),
    explains=EXPLAINS,
    checks=(
        proves("it dials an address where nobody listens", _dials_elsewhere),
        proves("it is told an address where nobody listens", _configured_elsewhere),
        proves("decode works alone", _decode_alone),
        proves("the scheduler decides for decode alone", _decided_alone),
        suggests("prefill is skipped", _skips),
    ),
)
