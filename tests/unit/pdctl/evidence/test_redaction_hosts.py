"""Hosts of the deployment, as bare words, wherever kernels, libraries and command lines state them."""

from __future__ import annotations

import pytest

from tests.unit.pdctl.evidence.test_redaction import shared

INSTANCE = b'name = "old"\n[[instance]]\nname = "prefill-0"\nrole = "prefill"\ndialect = "sglang"\n'
LINES = (
    "[Jun 19 14:30:01] {} kernel: NVRM: Xid (PCI:0000:3b:00): 79",
    "{}:2209:2209 [0] NCCL INFO Bootstrap : Using eth0",
    "[1689083051.123456] [{}:703  :0]  ib_mlx5_log.c:177 UCX  ERROR Remote I/O error",
    "argv: --dist-init-addr {}:5000 --nnodes 2",
    "cannot reach {}",
    "chatcmpl-___prefill_addr_{}:8000___decode_addr_127.0.0.1:8001_9f",
)


def log_beside(topology: str, text: str, file: str = "log.txt") -> str:
    """Return the shared log of prefill-0, of which the topology says this."""
    files = shared({"topology.toml": INSTANCE + topology.encode(), f"prefill-0/{file}": text.encode()})
    assert b"acme" not in b"".join(files.values())
    return files[f"prefill-0/{file}"].decode()


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("topology", [
    'host = "ssh:acme-gpu7"', 'host = "ssh:ops@acme-gpu7"', 'url = "http://acme-gpu7:30000"', 'url = "acme-gpu7:30000"',
    'metrics_url = "http://acme-gpu7:9100/metrics"', 'hosts = ["ssh:ops@acme-gpu7"]',
    'host = "exec:kubectl exec -i acme-gpu7 -c engine --"', 'host = "exec:docker exec -i acme-gpu7"',
])  # fmt: skip
def test_a_host_of_the_topology_goes_as_a_bare_word(topology: str, line: str) -> None:
    """However the operator wrote it; the rest of the line stays as it was."""
    text = log_beside(topology, line.format("acme-gpu7"))
    assert text in (line.format("host-x1"), line.format("host-x2"))


@pytest.mark.parametrize(
    "topology",
    ['host = "ssh:ops@gpu7.acme.zz"', 'hosts = ["ssh:ops@gpu7", "gpu7.acme.zz"]', 'url = "http://gpu7.acme.zz:30000"'],
)
def test_the_short_form_of_a_host_is_the_same_host(topology: str) -> None:
    """Kernels and NCCL state it, and who reads has to see that it is the one of the topology."""
    assert log_beside(topology, "gpu7:9:9 [0] NCCL INFO x gpu7.acme.zz") == "host-x1:9:9 [0] NCCL INFO x host-x1"


def test_one_short_form_of_two_hosts_is_neither() -> None:
    """Which of them it is nobody can tell; it goes all the same."""
    text = log_beside('hosts = ["ssh:gpu7.acme.zz", "ssh:gpu7.acme.yy"]', "gpu7 gpu7.acme.zz gpu7.acme.yy")
    assert sorted(text.split()) == ["host-x1", "host-x2", "host-x3"]


@pytest.mark.parametrize(("line", "file"), [
    ("Jun 19 14:30:01 {} kernel: Out of memory: Killed process 7", "kernel.txt"),
    ("2026-06-19T14:30:01+0000 {} kernel: Out of memory", "kernel.txt"),
    ("Jun 19 14:30:01 {} sglang[123]: started", "log.txt"),
    ("{}:2209:2211 [0] NCCL INFO comm 0x1", "log.txt"),
    ("(EngineCore pid=9) {}:2209:2211 [0] NCCL WARN x", "log.txt"),
    ("[1689083051.1] [{}:703  :0]  ucp_ep.c:1 UCX  ERROR x", "log.txt"),
    ("server_args=ServerArgs(dist_init_addr='{}:5000', nnodes=2)", "log.txt"),
    ("argv: ['--master-addr', '{}', '--nnodes', '2']", "log.txt"),
])  # fmt: skip
def test_a_host_that_its_own_lines_state_is_known(line: str, file: str) -> None:
    """Also where the topology knows only an address of it; then it goes everywhere."""
    text = log_beside('url = "http://10.1.2.3:30000"', f"{line}\nand {{}}".format("acme-gpu7", "acme-gpu7"), file)
    assert text == f"{line}\nand {{}}".format("host-x1", "host-x1")


@pytest.mark.parametrize("topology", [
    'url = "http://localhost:30000"', 'url = "http://host.docker.internal:1"', 'host = "local"', 'url = "http://p1:1"',
    'host = "exec:docker exec -i engine"', 'url = "http://10.0.0.7:1"', 'url = "http://[::1"', 'url = "http://7777:1"',
    'host = "exec:kubectl exec \'x"', 'hosts = 5', 'url = 5',
])  # fmt: skip
def test_words_of_everybody_are_nobodys_name(topology: str) -> None:
    """Loopback, roles, numbers, short words, and the words of the tools that lead into a container."""
    line = "localhost host docker exec local kubectl 7777 p1 engine kernel: INFO [12:30:01 :1] UCX"
    assert log_beside(topology, line) == line


@pytest.mark.parametrize(("place", "shown"), [
    ("ssh:jd@gp7", "ssh:user-x1@host-x1"),
    ("ssh:gp7", "ssh:host-x1"),
    ("ssh:jd@node", "ssh:user-x1@host-x1"),
    ("ssh:jd@acme-gpu7", "ssh:user-x1@host-x1"),
])  # fmt: skip
def test_a_host_that_cannot_be_searched_for_goes_where_it_is_one(place: str, shown: str) -> None:
    """Three letters, or everybody's word, and the user before it."""
    for line in (f'host = "{place}"', f'hosts = ["{place}"]'):
        files = shared({"topology.toml": INSTANCE + line.encode()})
        assert line.replace(place, shown) in files["topology.toml"].decode()
