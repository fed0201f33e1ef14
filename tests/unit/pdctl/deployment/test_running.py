"""Command lines and ports of this host -> a deployment."""

from __future__ import annotations

import itertools

import pytest

from pdctl.collect.host_processes import ProcessRow, Table
from pdctl.deployment import router_answers
from pdctl.deployment.model import Role
from pdctl.deployment.running import find, with_missing
from pdctl.errors import CannotTell, UsageError
from tests.fakes import families

_TICKS = itertools.count(1)


def row(pid: int, command: str, *listening: int, ppid: int = 1, unit: str | None = None, name: str = "") -> ProcessRow:
    return ProcessRow(
        pid=pid,
        ppid=ppid,
        name=name or command.split()[0],
        state="S",
        started_at=1.0,
        start_ticks=next(_TICKS),
        cpu_s=0.0,
        cmdline=tuple(command.split(" ")),
        unit=unit,
        listening=listening,
    )


CASES = {
    "pdctl": (
        "/v/bin/python -m engine --role prefill --model /m/x.gguf --port 30000 --served-name x --instance p7 "
        "--bootstrap-port 9100",
        (30000, 9100),
        ("p7", "pdctl", "prefill", "http://127.0.0.1:30000", 9100, "x", None, "nixl"),
    ),
    "sglang": (
        "python3 -m sglang.launch_server --model-path q/7b --disaggregation-mode decode --host 0.0.0.0 --port=31000 "
        "--tp 4 --disaggregation-transfer-backend nixl",
        (31000,),
        ("decode-0", "sglang", "decode", "http://127.0.0.1:31000", None, "q/7b", 4, "nixl"),
    ),
    "sglang defaults": (
        "python -u -m sglang.launch_server --model-path q/7b --disaggregation-mode prefill",
        (30000, 8998),
        ("prefill-0", "sglang", "prefill", "http://127.0.0.1:30000", 8998, "q/7b", 1, "mooncake"),
    ),
    "vllm": (
        "/usr/bin/python3 /usr/local/bin/vllm serve m/8b --port 8100 -tp 2 --kv-transfer-config "
        '{"kv_connector":"NixlConnector","kv_role":"kv_producer"}',
        (8100,),
        ("prefill-0", "vllm", "prefill", "http://127.0.0.1:8100", None, "m/8b", 2, None),
    ),
    "smg": (
        "python -m smg launch --host 127.0.0.1 --port 30001 --prometheus-port 29001 --pd-disaggregation",
        (30001, 29001),
        ("router", "smg", "router", "http://127.0.0.1:30001", None, None, None, None),
    ),
    "vllm-router": (
        "python3 -m vllm_router.launch_router --port 8000",
        (8000, 29000),
        ("router", "vllm-router", "router", "http://127.0.0.1:8000", None, None, None, None),
    ),
    "dynamo frontend": (
        "python -m dynamo.frontend --http-host 127.0.0.1 --http-port 8080",
        (8080,),
        ("router", "dynamo", "router", "http://127.0.0.1:8080", None, None, None, None),
    ),
    "dynamo worker": (
        "python -m dynamo.mocker --model-path d --model-name smol --disaggregation-mode prefill",
        (18011,),
        ("prefill-0", "dynamo", "prefill", "http://127.0.0.1:18011", None, "smol", 1, None),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_family_is_known_by_its_command_line(case: str) -> None:
    """Dialect, role, address and what else the flags tell are taken over."""
    command, ports, wanted = CASES[case]
    instance = find(Table(processes=(row(10, command, *ports),))).deployment.instances[0]
    assert wanted == (
        instance.name,
        instance.dialect,
        instance.role.value,
        instance.url,
        instance.bootstrap_port,
        instance.model,
        instance.tp,
        instance.transfer,
    )


def test_workers_of_an_engine_are_not_engines() -> None:
    """Ranks, forked API servers and the shell around an engine are passed over."""
    main = row(10, "python3 -m sglang.launch_server --port 30000", 30000, ppid=9)
    table = Table(
        processes=(
            row(9, "sh -c python3", ppid=1),
            main,
            row(11, "sglang::scheduler_TP0", ppid=10),
            row(12, "python3 -m sglang.launch_server --port 30000", ppid=10),
            row(13, "grep -m engine", ppid=1),
        )
    )
    assert [item.partition(", pid ")[2].partition(",")[0] for item in find(table).taken] == ["10"]


def test_a_role_that_no_flag_tells_is_said_to_be_unknown() -> None:
    """vLLM with kv_both is taken as unified, and the doubt is told."""
    found = find(Table(processes=(row(10, 'vllm serve m --kv-transfer-config {"kv_role":"kv_both"}', 8000),)))
    assert found.deployment.instances[0].role is Role.UNIFIED
    assert any("role" in note for note in found.untold)


def test_a_router_here_tells_the_roles_of_its_workers() -> None:
    """What vLLM's own command line leaves open stands in that of its router."""
    table = Table(
        processes=(
            row(10, 'vllm serve m --port 8100 --kv-transfer-config {"kv_role":"kv_both"}', 8100),
            row(11, 'vllm serve m --port 8200 --kv-transfer-config {"kv_role":"kv_both"}', 8200),
            row(
                12,
                "python -m vllm_router.launch_router --prefill http://127.0.0.1:8100 --decode http://localhost:8200",
                8000,
                29000,
            ),
        )
    )
    found = find(table)
    assert [(i.name, i.role.value) for i in found.deployment.instances] == [
        ("prefill-0", "prefill"),
        ("decode-0", "decode"),
        ("router", "router"),
    ]
    assert found.untold == ()


def test_the_unit_is_taken_only_where_it_is_the_engines_own() -> None:
    """A unit is the manager of what it starts; cron and sshd are not."""
    own = find(Table(processes=(row(10, "python -m engine --role decode", 30002, unit="pd@d0.service"),)))
    cron = row(8, "/usr/sbin/cron", unit="cron.service", name="cron")
    lent = find(Table(processes=(cron, row(10, "python -m engine --role decode", ppid=8, unit="cron.service"))))
    assert (own.deployment.instances[0].manager, own.deployment.instances[0].unit) == ("systemd", "pd@d0.service")
    assert (lent.deployment.instances[0].manager, lent.deployment.instances[0].unit) == ("none", None)


def test_what_pdctl_runs_is_found_under_its_own_names() -> None:
    """The shim above a process names instance, deployment and state folder."""
    shim = row(8, "/v/bin/python -I -S /x/shim_process.py /s/pdctl/lab/instances/prefill-1.spec")
    found = find(Table(processes=(shim, row(10, "python -m engine --role prefill --port 30000", 30000, 8998, ppid=8))))
    instance = found.deployment.instances[0]
    assert (found.deployment.name, instance.name, instance.manager) == ("lab", "prefill-1", "shim")
    assert found.folder is not None
    assert str(found.folder.folder) == "/s/pdctl/lab"


def test_an_engine_that_does_not_listen_is_said_so() -> None:
    """A hang before the port is open shows in the notes, not as absence."""
    found = find(Table(processes=(row(10, "python -m engine --role decode --port 30002"),)))
    assert any("nothing of it listens on port 30002" in note for note in found.untold)


def test_nothing_found_says_what_to_do() -> None:
    """A host without engines is an answer of its own, with the next step."""
    with pytest.raises(CannotTell, match="no engine or router"):
        find(Table(processes=(row(1, "/sbin/init"),)))


def test_two_deployments_on_one_host_are_not_mixed() -> None:
    """Pairs that know each other by their registries are told apart, and the user is asked for one."""
    rows = [
        row(10, "python -m engine --role prefill --port 30000 --bootstrap-port 8998", 30000, 8998),
        row(11, "python -m engine --role decode --port 30002 --peers 127.0.0.1:8998", 30002),
        row(20, "python -m engine --role prefill --port 40000 --bootstrap-port 9998", 40000, 9998),
        row(21, "python -m engine --role decode --port 40002 --peers 127.0.0.1:9998", 40002),
    ]
    assert len(find(Table(processes=tuple(rows[:2]))).deployment.instances) == 2
    with pytest.raises(UsageError, match="2 deployments run on this host") as caught:
        find(Table(processes=tuple(rows)))
    assert "--name" in (caught.value.hint or "")


def test_a_router_that_shows_no_arguments_is_found_by_its_title_and_port() -> None:
    """smg renames itself; the port is the one it listens on that is not its metrics' default."""
    found = find(Table(processes=(row(10, "smg::router", 30001, 29000),)))
    assert [(i.dialect, i.url) for i in found.deployment.instances] == [("smg", "http://127.0.0.1:30001")]
    assert any("port is not in its command line" in note for note in found.untold)


def test_a_worker_that_its_router_names_and_that_does_not_run_belongs_to_it() -> None:
    """Dead it has no process; who sends requests to it tells of it."""
    router = "vllm-router --port 8000 --prefill http://127.0.0.1:8100 --decode http://localhost:8200"
    decode = 'vllm serve m --port 8200 --kv-transfer-config {"kv_role":"kv_consumer"}'
    found = find(Table(processes=(row(10, router, 8000), row(11, decode, 8200))))
    (missing,) = (item for item in found.deployment.instances if item.role is Role.PREFILL)
    assert (missing.name, missing.dialect, missing.url) == ("prefill-0", "vllm", "http://127.0.0.1:8100")
    assert found.taken[-1].startswith("prefill-0: http://127.0.0.1:8100, named by the router")


def test_a_worker_on_another_host_is_not_missed_here() -> None:
    """Its processes are not this host's."""
    router = "vllm-router --port 8000 --prefill http://192.0.2.7:8100 --decode http://127.0.0.1:8200"
    decode = 'vllm serve m --port 8200 --kv-transfer-config {"kv_role":"kv_consumer"}'
    found = find(Table(processes=(row(10, router, 8000), row(11, decode, 8200))))
    assert {item.role for item in found.deployment.instances} == {Role.ROUTER, Role.DECODE}


def test_of_workers_none_of_which_runs_the_family_is_not_known() -> None:
    """A router of several families names addresses alone."""
    found = find(Table(processes=(row(10, "smg launch --port 8000 --prefill http://127.0.0.1:1 2", 8000),)))
    assert [item.role for item in found.deployment.instances] == [Role.ROUTER]


def test_a_router_that_hides_its_arguments_is_asked() -> None:
    """Its list has the dead worker's address and role; what runs is not added twice."""
    decode = 'vllm serve m --port 8200 --kv-transfer-config {"kv_role":"kv_consumer"}'
    listed: list[dict[str, object]] = [
        {"url": "http://127.0.0.1:8100", "worker_type": "prefill"},
        {"url": "http://localhost:8200/", "worker_type": "decode"},
        {"url": "http://192.0.2.9:1", "worker_type": "prefill"},
    ]
    with families.smg(listed) as router:
        found = find(Table(processes=(row(10, "smg::router", router.port), row(11, decode, 8200))))
        told = router_answers.roles(found.deployment.of_role(Role.ROUTER))
    whole = with_missing(found, told).deployment
    assert {(item.name, item.url) for item in whole.instances if item.role is not Role.ROUTER} == {
        ("decode-0", "http://127.0.0.1:8200"),
        ("prefill-0", "http://127.0.0.1:8100"),
    }


def test_a_router_that_does_not_answer_tells_nothing() -> None:
    """Nothing is added, and nothing fails."""
    found = find(Table(processes=(row(10, "smg::router", 1),)))
    assert router_answers.roles(found.deployment.of_role(Role.ROUTER)) == {}
