"""PD0204, PD0206, PD0207: a side dials the wrong port, announces the wrong address, or meets the wrong engine."""

from __future__ import annotations

import ipaddress

from pdctl.diagnose.analyzer import (
    DEATHS,
    ENGINES,
    EVERYONE,
    FAILURES,
    STALLS,
    Analyzer,
    proves,
    requires,
    suggests,
)
from pdctl.diagnose.answer import Answer, Kind, no, unknown, yes
from pdctl.diagnose.case import Case
from pdctl.diagnose.predicates import a_peer_says, alive, nobody_gone
from pdctl.diagnose.symptoms import Symptom
from pdctl.diagnose.view import InstanceView
from pdctl.dialects.signals import Event
from pdctl.evidence.records import Place
from pdctl.evidence.urls import host_of

_EXPLAINS = (*FAILURES, *STALLS, *DEATHS, Symptom.UNHEALTHY)


def bootstrap_port(view: InstanceView) -> int | None:
    """Return the port a prefill was told to open its registry on."""
    source = view.raw.source
    flag = source.flag("--disaggregation-bootstrap-port") if source else None
    return int(flag) if flag and flag.isdecimal() else view.raw.bootstrap_port


def announced_ports(router: InstanceView) -> dict[str, int]:
    """Return host -> bootstrap port as the router was told with `--prefill URL PORT`."""
    flags = router.raw.source.flags if router.raw.source else ()
    return {
        host_of(flags[index + 1]): int(flags[index + 2])
        for index, word in enumerate(flags)
        if word == "--prefill" and index + 2 < len(flags) and flags[index + 2].isdecimal()
    }


def _router_announces_another(case: Case, view: InstanceView) -> Answer:
    own = bootstrap_port(view)
    for router in case.routers:
        told = announced_ports(router).get(host_of(view.raw.url))
        if told is None or own is None:
            continue
        text = f"{router.name} announces port {told} for {view.name}, which was started with {own}"
        if told != own:
            return yes(text, Kind.SOURCE, Place(f"{router.name}/source.toml", pointer="--prefill"), told)
        return no(f"{router.name} announces the port {own} of {view.name}", Kind.SOURCE, value=own)
    return unknown("the port that the router announces is not known")


def _registry_refused(case: Case, view: InstanceView) -> Answer:
    own = bootstrap_port(view)
    for peer in case.peers(view):
        for item in peer.telling(Event.REGISTRY_UNREACHABLE):
            if item.group("host") and item.group("host") != host_of(view.raw.url):
                continue
            port = item.group("port")
            if port and own and int(port) != own:
                return yes(
                    f"{peer.name} asks port {port}, {view.name} listens on {own}",
                    Kind.LOG,
                    item.place,
                    int(port),
                )
    return unknown("no refused registry names another port")


PORT = Analyzer(
    code="PD0204",
    roles=("prefill",),
    inputs=(Kind.METRICS, Kind.SOURCE, Kind.LOG, Kind.HTTP, Kind.PROCESS),
    explains=_EXPLAINS,
    checks=(
        requires("prefill lives", alive),
        proves("decode asks another port than prefill opened", _registry_refused),
        proves("the router announces another port", _router_announces_another),
        suggests(
            "decode cannot reach the registry",
            a_peer_says(Event.REGISTRY_UNREACHABLE, otherwise="no peer complains about the registry"),
        ),
    ),
)


def _announced_elsewhere(case: Case, view: InstanceView) -> Answer:
    own = host_of(view.raw.url)
    source = view.raw.source
    bound = (source.flag("--host") or "") if source else ""
    for item in view.events(Event.LISTEN_ADDRESS):
        host = item.group("host")
        if not host or not own or host in (own, bound, "0.0.0.0"):
            continue
        if _network(host) != _network(own):
            return yes(f"{view.name} serves on {own}, its transfer engine announces {host}", Kind.LOG, item.place)
    if view.events(Event.LISTEN_ADDRESS):
        return no(f"{view.name} announces an address of its own network", Kind.LOG)
    return unknown("no line tells what the transfer engine announces")


def _network(host: str) -> str:
    try:
        return str(ipaddress.ip_network(f"{host}/24", strict=False))
    except ValueError:
        return host


ADDRESS = Analyzer(
    code="PD0206",
    roles=ENGINES,
    inputs=(Kind.LOG, Kind.SOURCE),
    explains=_EXPLAINS,
    checks=(
        requires("the announced address is of another network", _announced_elsewhere),
        proves("the transfer engine announces another network", _announced_elsewhere),
    ),
)


def _meets_itself(case: Case, view: InstanceView) -> Answer:
    wrong = view.events(Event.WRONG_PEER)
    if not wrong:
        return unknown("no handshake met the wrong engine")
    own = {item.group("id").rstrip(".") for item in view.events(Event.ENGINE_ID)}
    got = wrong[-1].group("got").rstrip(".")
    if got in own:
        return yes(
            f"{view.name} reached itself: it got {got[:13]}, its own id",
            Kind.LOG,
            wrong[-1].place,
            len(wrong),
        )
    peers = {item.group("id").rstrip(".") for peer in case.peers(view) for item in peer.events(Event.ENGINE_ID)}
    if got in peers:
        return no("the handshake reached the peer as it is now: its id was old", Kind.LOG, wrong[-1].place)
    return unknown(f"whose id {got[:13]} is, is not known")


def _announces_loopback(case: Case, view: InstanceView) -> Answer:
    """vLLM announces VLLM_NIXL_SIDE_CHANNEL_HOST, localhost by default: another host then reaches itself."""
    source = view.raw.source
    is_vllm = view.raw.dialect in ("vllm", "dynamo", "llm-d") and view.transfer in (None, "nixl")
    if source is None or not is_vllm or view.role != "prefill":
        return unknown(f"what {view.name} announces is not known")
    announced = source.env.get("VLLM_NIXL_SIDE_CHANNEL_HOST")
    own = host_of(view.raw.url)
    elsewhere = [peer for peer in case.peers(view) if host_of(peer.raw.url) not in ("", own)]
    if not elsewhere or not source.env:
        return unknown("both sides are on one host, or the environment is not known")
    if announced in (None, "localhost", "127.0.0.1"):
        text = f"{view.name} announces {announced or 'localhost (the default)'} to {elsewhere[0].name} on another host"
        return yes(text, Kind.SOURCE, Place(f"{view.name}/source.toml", pointer="VLLM_NIXL_SIDE_CHANNEL_HOST"))
    return no(f"{view.name} announces {announced}", Kind.SOURCE)


ENGINE = Analyzer(
    code="PD0207",
    roles=EVERYONE,
    inputs=(Kind.LOG, Kind.SOURCE, Kind.HTTP, Kind.PROCESS),
    explains=_EXPLAINS,
    checks=(
        requires("no side is gone", nobody_gone),
        proves("the id it got is its own", _meets_itself),
        suggests("it announces localhost to another host", _announces_loopback),
        suggests(
            "handshakes with it fail",
            a_peer_says(Event.HANDSHAKE_FAILED, Event.WRONG_PEER, otherwise="no handshake fails"),
        ),
    ),
)
ANALYZERS = (PORT, ADDRESS, ENGINE)
