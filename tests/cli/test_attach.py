"""`pdctl attach` against small servers that answer as the real families do."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack
from pathlib import Path

from pdctl.deployment.files import load
from pdctl.deployment.model import Role
from tests.cli.pdctl_process import run
from tests.fakes.families import sglang, smg, vllm
from tests.fakes.http_server import FakeServer, Reply


def unused_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_finds_roles_versions_and_ports(tmp_path: Path) -> None:
    """Two workers and their router become a deployment file that says all they told."""
    with ExitStack() as stack:
        prefill, decode = stack.enter_context(sglang("prefill")), stack.enter_context(sglang("decode"))
        router = stack.enter_context(smg([]))
        ran = run(tmp_path, "attach", prefill.url, decode.url, router.url)
    assert ran.returncode == 0, ran.stderr
    deployment = load(tmp_path / "pd.toml")
    assert (deployment.name, deployment.model) == ("smol", "smol")
    assert [(one.name, one.dialect, one.version) for one in deployment.instances] == [
        ("prefill-0", "sglang", "0.5.23"),
        ("decode-0", "sglang", "0.5.23"),
        ("router", "smg", None),
    ]
    first = deployment.instances[0]
    assert (first.bootstrap_port, first.tp, first.transfer, first.url) == (8998, 2, "nixl", prefill.url)
    assert "router: version not told" in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("wrote pd.toml")


def test_router_reveals_its_workers(tmp_path: Path) -> None:
    """The router's URL is enough; it even knows the roles that vLLM does not tell."""
    with ExitStack() as stack:
        prefill, decode = stack.enter_context(vllm()), stack.enter_context(vllm())
        workers: list[dict[str, object]] = [
            {"url": decode.url, "worker_type": "decode"},
            {"url": prefill.url, "worker_type": "prefill", "bootstrap_port": 4711},
        ]
        router = stack.enter_context(smg(workers))
        ran = run(tmp_path, "attach", router.url, "--name", "lab")
    assert ran.returncode == 0, ran.stderr
    deployment = load(tmp_path / "pd.toml")
    assert deployment.name == "lab"
    assert {one.url: one.role for one in deployment.instances} == {
        router.url: Role.ROUTER,
        decode.url: Role.DECODE,
        prefill.url: Role.PREFILL,
    }
    assert deployment.of_role(Role.PREFILL)[0].bootstrap_port == 4711


def test_only_gets_are_sent(tmp_path: Path) -> None:
    """Attaching changes nothing: every request is a GET."""
    with sglang("prefill") as prefill:
        run(tmp_path, "attach", prefill.url)
    assert prefill.requests
    assert prefill.paths("POST") == []


def test_role_that_nobody_tells_has_to_be_said(tmp_path: Path) -> None:
    """vLLM without a router: exit 3 and how to say the role; with it, a file."""
    with vllm() as one, vllm() as two:
        ran = run(tmp_path, "attach", one.url, two.url)
        assert ran.returncode == 3
        assert f"prefill={one.url}" in ran.stderr
        assert not (tmp_path / "pd.toml").exists()
        assert run(tmp_path, "attach", f"prefill={one.url}", f"decode={two.url}").returncode == 0
    assert [one.role for one in load(tmp_path / "pd.toml").instances] == [Role.PREFILL, Role.DECODE]


def test_role_that_the_engine_contradicts_is_refused(tmp_path: Path) -> None:
    """A deployment file with the sides mixed up would mislead every command: exit 1, and what to give instead."""
    with sglang("decode") as decode:
        ran = run(tmp_path, "attach", f"prefill={decode.url}")
    assert ran.returncode == 1
    assert f"{decode.url} says that it is decode, not prefill" in ran.stderr
    assert not (tmp_path / "pd.toml").exists()


def test_unreachable_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    """One address that does not answer: exit 1, which one and how, no file."""
    nobody = unused_url()
    with sglang("prefill") as prefill:
        ran = run(tmp_path, "attach", prefill.url, nobody)
    assert ran.returncode == 1
    assert f"{nobody} does not answer: refused" in ran.stderr
    assert not (tmp_path / "pd.toml").exists()


def test_other_server_is_no_engine(tmp_path: Path) -> None:
    """A web server that knows none of the paths is said to be no engine."""
    with FakeServer({"/": Reply(b"<html>")}) as web:
        ran = run(tmp_path, "attach", web.url)
    assert ran.returncode == 1
    assert "no engine or router that pdctl knows" in ran.stderr


def test_address_given_twice(tmp_path: Path) -> None:
    """The same address twice is wrong usage, whatever its spelling."""
    url = unused_url()
    ran = run(tmp_path, "attach", url, url + "/")
    assert ran.returncode == 2
    assert "given twice" in ran.stderr


def test_what_is_no_address(tmp_path: Path) -> None:
    """A path, another scheme or a port out of range is wrong usage."""
    for wrong in ("http://h:1/v1", "ftp://h:1", "http://h:99999", "prefill=", "http://user:secret@h:1"):
        assert run(tmp_path, "attach", wrong).returncode == 2


def test_existing_file_is_kept(tmp_path: Path) -> None:
    """An existing file is overwritten with --force only."""
    (tmp_path / "pd.toml").write_text("precious")
    with sglang("prefill") as prefill:
        ran = run(tmp_path, "attach", prefill.url)
        assert (ran.returncode, (tmp_path / "pd.toml").read_text()) == (2, "precious")
        assert run(tmp_path, "attach", prefill.url, "--force").returncode == 0
    assert load(tmp_path / "pd.toml").instances


def test_worker_that_is_gone_is_a_note(tmp_path: Path) -> None:
    """A worker that a router lists and that does not answer is left out, and said."""
    nobody = unused_url()
    with sglang("prefill") as prefill, smg([{"url": nobody, "worker_type": "decode"}]) as router:
        ran = run(tmp_path, "attach", router.url, prefill.url, "-o", "json")
    notes = json.loads(ran.stdout)["notes"]
    assert any(nobody in note for note in notes)
    assert any("no decode" in note for note in notes)


def test_key_goes_to_no_host_that_only_a_router_named(tmp_path: Path) -> None:
    """A router cannot make pdctl send the key to a host that the operator did not name."""
    with sglang("decode") as decode:
        elsewhere = decode.url.replace("127.0.0.1", "localhost")
        with smg([{"url": elsewhere, "worker_type": "decode"}]) as router:
            ran = run(tmp_path, "attach", router.url, PDCTL_API_KEY="secret")
    assert ran.returncode == 0, ran.stderr
    assert {request.headers["Authorization"] for request in router.requests} == {"Bearer secret"}
    assert {request.headers["Authorization"] for request in decode.requests} == {None}
    assert "secret" not in (tmp_path / "pd.toml").read_text()
