"""The deployment that `pdctl up` makes up by itself, and how its processes are started."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.errors import UsageError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
QUIET = {
    # Two engines whose idle threads spin on two cores are 15 times slower (measured).
    "OMP_WAIT_POLICY": "passive",
    "NIXL_LOG_LEVEL": "ERROR",
    "UCX_LOG_LEVEL": "error",
}
# Reacts to an engine's death and return within 2 s, and never locks out a healthy engine: defaults poll
# every 60 s, and open a circuit for 60 s after ten refusals. Engines own all deadlines; smg's would cut
# long streams. A body that the engines refuse as too large would come back as 500: smg itself can say 413.
# At the end of its grace smg cuts streams without an error event: as long as the engines' drain, below STOP_DEADLINE_S.
SMG_OPTIONS = (
    "--health-check-interval-secs 1 --health-check-timeout-secs 1 --health-failure-threshold 2 "
    "--health-success-threshold 1 --worker-startup-check-interval 1 "
    "--worker-startup-timeout-secs 31536000 --disable-retries --disable-circuit-breaker "
    "--disable-worker-overload-protection --worker-wedge-secs 600 --worker-warmup-secs 0 "
    "--pd-admission-wait-secs 0 --disable-tokenizer-autoload --disable-load-monitoring "
    "--request-timeout-secs 3600 --shutdown-grace-period-secs 30 --sse-keepalive-secs 5 "
    "--max-payload-size 16777216"
)
MOST_ENGINES = 32
MOST_RANKS = 64


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of the default deployment; engines after the first pair follow `decode`."""

    prefill: int = 30000
    router: int = 30001
    decode: int = 30002
    bootstrap: int = 8998
    router_metrics: int = 29000

    @classmethod
    def from_base(cls, base: int) -> Ports:
        """Return a set in [base, base + 99]."""
        if not 1024 <= base <= 65436:
            raise UsageError(f"--port-base {base} is out of range", "choose one from 1024 to 65436")
        return cls(base, base + 1, base + 2, bootstrap=base + 60, router_metrics=base + 50)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many engines of each role, and ranks of each engine. Raises UsageError where that cannot be laid out."""

    prefill: int = 1
    decode: int = 1
    tp: int = 1

    def __post_init__(self) -> None:
        if self.prefill < 1 or self.decode < 1 or self.prefill + self.decode > MOST_ENGINES:
            raise UsageError(
                f"--prefill {self.prefill} --decode {self.decode} cannot be laid out",
                f"at least one of each, at most {MOST_ENGINES} together",
            )
        if not 1 <= self.tp <= MOST_RANKS:
            raise UsageError(f"--tp {self.tp} cannot be laid out", f"choose from 1 to {MOST_RANKS} ranks an engine")


def default_deployment(
    *, name: str, model: str, served_name: str, counts: Counts, ports: Ports, cores: int
) -> Deployment:
    """Lay out N prefill engines, M decode engines and one router on this machine's loopback."""
    extra = iter(range(ports.decode + 1, ports.decode + 1 + MOST_ENGINES))
    engines = [
        Instance(
            name=f"{role}-{index}",
            role=role,
            dialect="pdctl",
            url=f"http://127.0.0.1:{first if index == 0 else next(extra)}",
            manager="shim",
            bootstrap_port=ports.bootstrap + index if role is Role.PREFILL else None,
            model=served_name,
            tp=counts.tp if counts.tp > 1 else None,
        )
        for role, first, count in (
            (Role.PREFILL, ports.prefill, counts.prefill),
            (Role.DECODE, ports.decode, counts.decode),
        )
        for index in range(count)
    ]
    router = Instance(
        name="router",
        role=Role.ROUTER,
        dialect="smg",
        url=f"http://127.0.0.1:{ports.router}",
        metrics_url=f"http://127.0.0.1:{ports.router_metrics}/metrics",
        manager="shim",
        model=served_name,
    )
    deployment = Deployment(name=name, model=served_name, instances=(*engines, router))
    return with_starts(deployment, model=model, cores=cores)


def with_starts(deployment: Deployment, *, model: str, cores: int) -> Deployment:
    """Fill in `start` and `env` of our own engines and routers on this machine that have none.

    `model` is the path that engines load; `cores` are divided among the ranks of all engines, at least one each.
    """
    ours = [i for i in deployment.instances if i.role is not Role.ROUTER and is_local(i) and i.dialect == "pdctl"]
    threads = max(1, cores // max(1, sum(instance.tp or 1 for instance in ours)))
    filled = []
    for instance in deployment.instances:
        if not is_local(instance) or instance.start is not None:
            filled.append(instance)
        elif instance.dialect == "pdctl":
            filled.append(_with_engine_start(instance, deployment, model, threads))
        elif instance.dialect == "smg":
            filled.append(_with_router_start(instance, deployment))
        else:
            filled.append(instance)
    return msgspec.structs.replace(deployment, instances=tuple(filled))


def needs_model(deployment: Deployment) -> bool:
    """Return whether some engine of ours must be told which weights to load."""
    return any(is_local(i) and i.dialect == "pdctl" and i.start is None for i in deployment.instances)


def is_local(instance: Instance) -> bool:
    """Return whether pdctl starts and stops this instance on this machine."""
    return instance.manager == "shim" and instance.host == "local"


def host_and_port(url: str) -> tuple[str, int]:
    """Split an instance's url; the scheme's own port where none is written."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def ports_of(instance: Instance) -> tuple[int, ...]:
    """Return every port the instance listens on."""
    urls = [instance.url] + ([instance.metrics_url] if instance.metrics_url else [])
    bootstrap = [instance.bootstrap_port] if instance.bootstrap_port and instance.role is Role.PREFILL else []
    return tuple(dict.fromkeys([host_and_port(url)[1] for url in urls] + bootstrap))


def _with_engine_start(instance: Instance, deployment: Deployment, model: str, threads: int) -> Instance:
    host, port = host_and_port(instance.url)
    argv = [sys.executable, "-m", "engine", "--role", instance.role.value, "--model", model]
    argv += ["--host", host, "--port", str(port), "--instance", instance.name]
    argv += ["--served-name", instance.model or deployment.model, "--threads", str(threads)]
    if instance.tp is not None and instance.tp > 1:
        argv += ["--tp", str(instance.tp)]
    if instance.role is Role.PREFILL and instance.bootstrap_port:
        argv += ["--bootstrap-port", str(instance.bootstrap_port)]
    if instance.role is Role.DECODE:
        argv += ["--peers", ",".join(_peer(prefill) for prefill in deployment.of_role(Role.PREFILL))]
    is_loopback = all(host_and_port(i.url)[0] in LOOPBACK for i in deployment.instances)
    env = QUIET | ({"UCX_NET_DEVICES": "lo"} if is_loopback else {}) | instance.env
    return msgspec.structs.replace(instance, start=tuple(argv), env=env)


def _peer(prefill: Instance) -> str:
    """Return `host:port` of a prefill's registry."""
    if prefill.bootstrap_port is None:
        raise UsageError(
            f"prefill {prefill.name!r} has no bootstrap_port, and others must be told it",
            "add `bootstrap_port = 8998` (or its own) to that instance",
        )
    return f"{host_and_port(prefill.url)[0]}:{prefill.bootstrap_port}"


def _with_router_start(router: Instance, deployment: Deployment) -> Instance:
    # smg heeds HTTP_PROXY, and no proxy reaches another machine's loopback. As for pdctl itself: engines are asked
    # directly. Upper and lower case, for whichever of them the surroundings set.
    hosts = ",".join(dict.fromkeys([*LOOPBACK, *(host_and_port(i.url)[0] for i in deployment.instances)]))
    env = {"NO_PROXY": hosts, "no_proxy": hosts} | router.env
    return msgspec.structs.replace(router, start=_router_argv(router, deployment), env=env)


def _router_argv(router: Instance, deployment: Deployment) -> tuple[str, ...]:
    host, port = host_and_port(router.url)
    argv = [sys.executable, "-m", "smg", "launch", "--host", host, "--port", str(port)]
    argv += ["--policy", "round_robin"]
    if unified := deployment.of_role(Role.UNIFIED):
        argv += ["--worker-urls", *(engine.url for engine in unified)]
    else:
        argv += ["--pd-disaggregation"]
    for prefill in deployment.of_role(Role.PREFILL):
        argv += ["--prefill", prefill.url, _peer(prefill).rpartition(":")[2]]
    for decode in deployment.of_role(Role.DECODE):
        argv += ["--decode", decode.url]
    if router.metrics_url:
        metrics_host, metrics_port = host_and_port(router.metrics_url)
        argv += ["--prometheus-host", metrics_host, "--prometheus-port", str(metrics_port)]
    return (*argv, *SMG_OPTIONS.split(), "--model-alias", f"default={deployment.model}")
