"""The default deployment and its commands."""

from __future__ import annotations

import sys

import msgspec
import pytest

from pdctl.deployment import layout
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.errors import UsageError
from pdctl.managers import shim


def laid_out(prefill: int = 1, decode: int = 1, ports: layout.Ports | None = None, cores: int = 2) -> Deployment:
    return layout.default_deployment(
        name="default",
        model="/models/m.gguf",
        served_name="smollm2",
        counts=layout.Counts(prefill, decode),
        ports=ports or layout.Ports(),
        cores=cores,
    )


def option(instance: Instance, name: str) -> str:
    assert instance.start is not None
    return instance.start[instance.start.index(name) + 1]


def test_one_pair_has_the_documented_ports() -> None:
    """30000, 30001, 30002, 8998 and 29000, all on loopback."""
    deployment = laid_out()
    assert {i.name: layout.ports_of(i) for i in deployment.instances} == {
        "prefill-0": (30000, 8998),
        "decode-0": (30002,),
        "router": (30001, 29000),
    }
    assert {layout.host_and_port(i.url)[0] for i in deployment.instances} == {"127.0.0.1"}


def test_engine_command() -> None:
    """Exactly the flags the engine takes."""
    prefill = laid_out().of_role(Role.PREFILL)[0]
    assert prefill.start == (
        *(sys.executable, "-m", "engine", "--role", "prefill", "--model", "/models/m.gguf"),
        *("--host", "127.0.0.1", "--port", "30000", "--instance", "prefill-0", "--served-name", "smollm2"),
        *("--threads", "1", "--bootstrap-port", "8998"),
    )


def test_decode_knows_every_prefill() -> None:
    """It may dial only the peers it is told."""
    decode = laid_out(prefill=3).of_role(Role.DECODE)[0]
    assert option(decode, "--peers") == "127.0.0.1:8998,127.0.0.1:8999,127.0.0.1:9000"


def test_router_lets_streams_end_as_long_as_engines_do() -> None:
    """The engines drain for 30 s; smg cuts what is left at its grace, and pdctl kills it later still."""
    router = laid_out().router
    assert router is not None
    assert 30 <= float(option(router, "--shutdown-grace-period-secs")) < shim.STOP_DEADLINE_S


def test_router_knows_every_engine() -> None:
    """Each prefill with its registry, each decode without."""
    router = laid_out(prefill=2, decode=2, ports=layout.Ports.from_base(31000)).router
    assert router is not None and router.start is not None
    command = " ".join(router.start)
    assert "--prefill http://127.0.0.1:31000 31060 --prefill http://127.0.0.1:31003 31061" in command
    assert "--decode http://127.0.0.1:31002 --decode http://127.0.0.1:31004" in command
    assert "--disable-retries --disable-circuit-breaker" in command
    assert "--model-alias default=smollm2" in command


def test_router_before_engines_without_a_split() -> None:
    """Plain workers, no legs."""
    unified, _, router = (msgspec.structs.replace(i, start=None, env={}) for i in laid_out().instances)
    unified = msgspec.structs.replace(unified, role=Role.UNIFIED, bootstrap_port=None)
    filled = layout.with_starts(Deployment(name="d", model="m", instances=(unified, router)), model="/m", cores=2)
    assert filled.router is not None and filled.router.start is not None
    command = " ".join(filled.router.start)
    assert "--worker-urls http://127.0.0.1:30000 --prometheus-host" in command
    assert "--pd-disaggregation" not in command


def test_router_asks_engines_without_a_proxy() -> None:
    """A proxy of the environment is kept from loopback and from engines elsewhere; a file that says else wins."""
    prefill, decode, router = (msgspec.structs.replace(i, start=None, env={}) for i in laid_out().instances)
    far = msgspec.structs.replace(decode, url="http://192.0.2.7:30002", host="ssh:far")
    deployment = Deployment(name="d", model="m", instances=(prefill, far, router))
    filled = layout.with_starts(deployment, model="/m", cores=2).instances[2]
    expected = "127.0.0.1,localhost,::1,192.0.2.7"
    assert filled.env == {"NO_PROXY": expected, "no_proxy": expected}
    own = msgspec.structs.replace(router, env={"NO_PROXY": "*"})
    deployment = Deployment(name="d", model="m", instances=(prefill, far, own))
    assert layout.with_starts(deployment, model="/m", cores=2).instances[2].env["NO_PROXY"] == "*"


@pytest.mark.parametrize(("prefill", "decode"), [(1, 1), (2, 3), (16, 16), (31, 1), (1, 31)])
@pytest.mark.parametrize("base", [None, 1024, 65436])
def test_no_port_is_used_twice(prefill: int, decode: int, base: int | None) -> None:
    """Whatever the numbers, every port is its own, and those with a base lie in its hundred."""
    ports = layout.Ports() if base is None else layout.Ports.from_base(base)
    used = [port for i in laid_out(prefill, decode, ports).instances for port in layout.ports_of(i)]
    assert len(used) == len(set(used)) == 2 * prefill + decode + 2
    assert base is None or all(base <= port < base + 100 for port in used)


@pytest.mark.parametrize(
    ("cores", "engines", "threads"), [(2, 2, "1"), (2, 4, "1"), (8, 2, "4"), (9, 2, "4"), (1, 2, "1")]
)
def test_cores_are_divided_among_engines(cores: int, engines: int, threads: str) -> None:
    """At least one each; never more in all than there are, unless there are too few."""
    deployment = laid_out(engines // 2, engines // 2, cores=cores)
    assert {option(i, "--threads") for i in deployment.instances if i.role is not Role.ROUTER} == {threads}


@pytest.mark.parametrize(("prefill", "decode"), [(0, 1), (1, 0), (-1, 1), (32, 1)])
def test_impossible_counts(prefill: int, decode: int) -> None:
    """The message repeats the flags."""
    with pytest.raises(UsageError, match=f"--prefill {prefill} --decode {decode}"):
        layout.Counts(prefill, decode)


@pytest.mark.parametrize("base", [-1, 0, 80, 65437, 70000])
def test_impossible_port_base(base: int) -> None:
    """Privileged ports, and ports past the last."""
    with pytest.raises(UsageError, match=f"--port-base {base}"):
        layout.Ports.from_base(base)


def test_loopback_transport_only_for_loopback_deployments() -> None:
    """UCX is bound to `lo` only if no instance is anywhere else."""
    deployment = laid_out()
    assert all(i.env["UCX_NET_DEVICES"] == "lo" for i in deployment.instances if i.role is not Role.ROUTER)
    without = tuple(msgspec.structs.replace(i, start=None, env={}) for i in deployment.instances)
    far = msgspec.structs.replace(without[1], url="http://192.0.2.7:30002", host="ssh:far")
    mixed = msgspec.structs.replace(deployment, instances=(without[0], far, without[2]))
    filled = layout.with_starts(mixed, model="/m", cores=2)
    assert "UCX_NET_DEVICES" not in filled.instances[0].env
    assert filled.instances[1].start is None


def test_start_and_env_of_the_file_win() -> None:
    """A command somebody wrote is not replaced, and neither is a variable."""
    prefill, decode, router = laid_out().instances
    own = msgspec.structs.replace(prefill, start=("mine",))
    loud = msgspec.structs.replace(decode, start=None, env={"UCX_LOG_LEVEL": "debug"})
    deployment = Deployment(name="d", model="m", instances=(own, loud, router))
    filled = layout.with_starts(deployment, model="/m", cores=2)
    assert filled.instances[0].start == ("mine",)
    assert filled.instances[1].env["UCX_LOG_LEVEL"] == "debug"


def test_prefill_without_registry_port_cannot_be_announced() -> None:
    """Decode and router must be told it."""
    prefill, decode, _ = laid_out().instances
    blind = msgspec.structs.replace(prefill, start=None, bootstrap_port=None)
    waiting = msgspec.structs.replace(decode, start=None)
    with pytest.raises(UsageError, match="'prefill-0' has no bootstrap_port"):
        layout.with_starts(Deployment(name="d", model="m", instances=(blind, waiting)), model="/m", cores=2)


def test_ranks_share_the_cores() -> None:
    """Two engines of two ranks on eight cores compute with two threads a rank, and are told so."""
    deployment = layout.default_deployment(
        name="default",
        model="/models/m.gguf",
        served_name="smollm2",
        counts=layout.Counts(tp=2),
        ports=layout.Ports(),
        cores=8,
    )
    engines = deployment.instances[:2]
    assert [(option(engine, "--tp"), option(engine, "--threads")) for engine in engines] == [("2", "2"), ("2", "2")]
    assert [engine.tp for engine in engines] == [2, 2]


def test_sides_of_a_file_may_differ_in_ranks() -> None:
    """`tp` of each instance; three ranks share six cores."""
    prefill, decode, router = (msgspec.structs.replace(one, start=None) for one in laid_out().instances)
    deployment = Deployment(name="d", model="m", instances=(msgspec.structs.replace(prefill, tp=2), decode, router))
    filled = layout.with_starts(deployment, model="/m", cores=6).instances
    assert (option(filled[0], "--tp"), option(filled[0], "--threads")) == ("2", "2")
    assert option(filled[1], "--threads") == "2"
    assert filled[1].start is not None
    assert "--tp" not in filled[1].start


@pytest.mark.parametrize("tp", [0, 65])
def test_a_number_of_ranks_out_of_reach_is_refused(tp: int) -> None:
    """Before anything is fetched or started."""
    with pytest.raises(UsageError, match=f"--tp {tp} cannot be laid out"):
        layout.Counts(tp=tp)
