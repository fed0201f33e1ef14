"""Keys: which routes need one, and which do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.api.access import check_exposure, is_loopback
from engine.config import EngineConfig, Role
from engine.errors import ConfigError
from tests.engine.api.instance import Instance, running


@pytest.fixture(scope="module")
def keyed(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """An instance with an API key."""
    folder = tmp_path_factory.mktemp("keyed")
    (folder / "key").write_text("s3cret\n")
    with running(tiny_model_dir, folder, "unified", "--api-key-file", str(folder / "key")) as instance:
        yield instance


def config(**values: object) -> EngineConfig:
    base = {
        "role": Role.UNIFIED,
        "model": "m",
        "served_name": "m",
        "instance": "i",
        "incarnation": "0",
        "port": 1,
    }
    return EngineConfig(**(base | values))  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/generate", "/tokenize"])
@pytest.mark.parametrize("header", [None, "Bearer wrong", "s3cret", "Basic s3cret"])
def test_generating_routes_need_the_key(keyed: Instance, path: str, header: str | None) -> None:
    """Without the right bearer token a request is refused before its body is looked at."""
    headers = {"Authorization": header} if header else {}
    response = keyed.http.post(path, content=b"{", headers=headers)
    assert (response.status_code, response.json()["error"]["type"]) == (401, "authentication_error")


def test_right_key_is_served(keyed: Instance) -> None:
    """The key from the file, without its newline, opens the route."""
    headers = {"Authorization": "Bearer s3cret"}
    assert keyed.http.post("/v1/completions", json={"prompt": "a"}, headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/models", "/server_info"])
def test_watching_needs_no_key(keyed: Instance, path: str) -> None:
    """Routers and monitors poll without one, and the key is in no answer."""
    response = keyed.http.get(path)
    assert response.status_code == 200
    assert "s3cret" not in response.text


def test_key_is_not_on_the_command_line(keyed: Instance) -> None:
    """Neither process shows the key to those who list processes."""
    pid = keyed.http.get("/server_info").json()["scheduler_pid"]
    for each in (keyed.process.pid, pid):
        assert b"s3cret" not in Path(f"/proc/{each}/cmdline").read_bytes()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_key(host: str) -> None:
    """On loopback an instance may run without one."""
    assert is_loopback(host)
    check_exposure(config(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "::", "engine.example"])
def test_open_bind_without_a_key_is_refused(host: str) -> None:
    """Elsewhere it needs its keys, or --insecure said aloud."""
    with pytest.raises(ConfigError, match="--api-key-file"):
        check_exposure(config(host=host))
    check_exposure(config(host=host, api_key="k"))
    check_exposure(config(host=host, insecure=True))


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
def test_open_control_channel_without_a_key_is_refused(role: Role) -> None:
    """A half of a pair needs the control channel's key as well."""
    with pytest.raises(ConfigError, match="give --control-key-file, bind"):
        check_exposure(config(role=role, host="10.1.2.3", api_key="k"))
    check_exposure(config(role=role, host="10.1.2.3", api_key="k", control_key="s"))


def test_web_page_on_this_machine_is_refused(keyed: Instance) -> None:
    """A page in a local browser can post to loopback, but the browser tells on it."""
    response = keyed.http.post("/drain", headers={"Origin": "https://evil.example"})
    assert (response.status_code, response.json()["error"]["code"]) == (403, "admin_only")
    assert keyed.health() == 200


def test_forwarded_client_is_not_on_this_machine(keyed: Instance) -> None:
    """A proxy on this machine does not lend its loopback address to the clients behind it."""
    response = keyed.http.get("/rooms", headers={"X-Forwarded-For": "10.1.2.3"})
    assert (response.status_code, response.json()["error"]["code"]) == (403, "admin_only")
    assert keyed.http.get("/rooms").status_code == 200
