"""How an instance starts, drains and dies: real processes and signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.engine.api.instance import REPOSITORY, SERVE_FAKE, WAIT_S, Instance, running, start, stop
from tests.ports import free_port
from tests.streams import raw_post
from tests.waiting import eventually

BODY = {"text": "hello", "sampling_params": {"max_new_tokens": 8}}


@pytest.fixture
def instance(tiny_model_dir: Path, tmp_path: Path) -> Iterator[Instance]:
    """An instance that the test may end."""
    with running(tiny_model_dir, tmp_path, "unified", "--drain-timeout", "20") as instance:
        yield instance


def scheduler_of(instance: Instance) -> psutil.Process:
    return psutil.Process(instance.http.get("/server_info").json()["scheduler_pid"])


def leftovers(instance: Instance) -> list[Path]:
    """Return the run folders that are still there (TMPDIR is the test's folder)."""
    return list(instance.folder.glob("pdengine-*"))


def test_sigterm_lets_requests_finish(instance: Instance) -> None:
    """SIGTERM: /health 503 draining, new requests 503, those in flight are answered, exit 0, nothing left."""
    with raw_post(instance.port, "/generate", BODY | {"stream": True}, "ask-1") as connection:
        eventually(lambda: instance.is_live("ask-1"), WAIT_S)
        instance.process.send_signal(signal.SIGTERM)
        eventually(lambda: instance.health() == 503, WAIT_S)
        assert instance.http.get("/health").json()["status"] == "draining"
        assert instance.error("/generate", BODY)[0] == 503
        (instance.folder / "gate").touch()
        connection.settimeout(10)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    assert b"data: [DONE]" in answer
    assert instance.exit_code() == 0
    assert leftovers(instance) == []


def test_drain_route_ends_an_idle_instance(instance: Instance) -> None:
    """POST /drain answers at once, then the instance leaves with 0."""
    scheduler = scheduler_of(instance)
    assert instance.post("/drain").status_code == 202
    assert instance.exit_code() == 0
    assert not scheduler.is_running()


def test_drain_timeout_ends_requests_with_an_event(tiny_model_dir: Path, tmp_path: Path) -> None:
    """What has not finished by then gets an error event; the exit code is still 0."""
    with (
        running(tiny_model_dir, tmp_path, "unified", "--drain-timeout", "0.2") as instance,
        raw_post(instance.port, "/generate", BODY | {"stream": True}, "stall-1") as connection,
    ):
        eventually(lambda: instance.is_live("stall-1"), WAIT_S)
        instance.process.send_signal(signal.SIGTERM)
        connection.settimeout(10)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        assert b'"code":"drain_timeout"' in answer
        assert b"[DONE]" not in answer
        assert instance.exit_code() == 0


def test_second_signal_stops_at_once(instance: Instance) -> None:
    """A second SIGTERM does not wait for the drain timeout of 20 s."""
    with raw_post(instance.port, "/generate", BODY, "hang-1"):
        eventually(lambda: instance.is_live("hang-1"), WAIT_S)
        began = time.monotonic()
        instance.process.send_signal(signal.SIGTERM)
        eventually(lambda: instance.health() == 503, WAIT_S)
        instance.process.send_signal(signal.SIGTERM)
        assert instance.exit_code() == 0
    assert time.monotonic() - began < 15


def test_death_of_the_scheduler_ends_streams_and_instance(instance: Instance) -> None:
    """kill -9 of the scheduler: error events in open streams, the reason in the log, exit 1."""
    scheduler = scheduler_of(instance)
    with raw_post(instance.port, "/generate", BODY | {"stream": True}, "stall-1") as connection:
        eventually(lambda: instance.is_live("stall-1"), WAIT_S)
        scheduler.kill()
        connection.settimeout(10)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    assert b'"code":"scheduler_died"' in answer
    assert instance.exit_code() == 1
    assert "was killed by SIGKILL" in instance.log()
    assert leftovers(instance) == []


def test_death_of_the_scheduler_answers_waiting_requests(instance: Instance) -> None:
    """A request that has no token yet gets a 503 with the reason."""
    status, error = instance.error("/generate", BODY, request_id="die-1")
    assert (status, error["code"]) == (503, "scheduler_died")
    assert "exited with code 7" in error["message"]
    assert instance.exit_code() == 1


def test_loading_instance_is_not_healthy(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Until the scheduler is ready /health is 503 loading, /health/live 200, and requests are refused."""
    never_ready = (
        "import sys; from pathlib import Path; from engine.arguments import parse_config;"
        "from engine.launch import launch;"
        "sys.exit(launch(parse_config(sys.argv[1:]), (sys.executable, '-c', 'import time; time.sleep(60)')))"
    )
    command = (SERVE_FAKE[0], "-c", never_ready)
    instance = start(tiny_model_dir, tmp_path, "unified", command=command)
    try:
        assert eventually(instance.health, WAIT_S) == 503
        assert instance.http.get("/health").json()["status"] == "loading"
        assert instance.http.get("/health/live").status_code == 200
        assert instance.error("/generate", BODY)[1]["code"] == "loading"
        assert instance.http.get("/v1/loads").status_code == 503
        assert instance.http.get("/metrics").status_code == 200
        instance.process.send_signal(signal.SIGTERM)
        assert instance.exit_code() == 0
    finally:
        stop(instance)


def test_scheduler_that_refuses_its_start_gives_exit_2(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Exit code 2 of the scheduler before it is ready means a bad model or flag; it is passed on."""
    refuses = (
        "import sys; from engine.arguments import parse_config; from engine.launch import launch;"
        "sys.exit(launch(parse_config(sys.argv[1:]), (sys.executable, '-c', 'raise SystemExit(2)')))"
    )
    instance = start(tiny_model_dir, tmp_path, "unified", command=(SERVE_FAKE[0], "-c", refuses))
    try:
        assert instance.exit_code() == 2
    finally:
        stop(instance)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an instance that is expected to end by itself."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    command = [*SERVE_FAKE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def test_port_in_use_is_one_message(tiny_model_dir: Path) -> None:
    """The port is named, nothing is started, exit 2."""
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        port = str(taken.getsockname()[1])
        result = run("--model", str(tiny_model_dir), "--role", "unified", "--port", port)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert f"--port {port}: 127.0.0.1:{port} is in use" in result.stderr


def test_missing_model_is_one_message(tmp_path: Path) -> None:
    """The path is named, exit 2, no traceback."""
    missing = str(tmp_path / "nothing.gguf")
    result = run("--model", missing, "--role", "unified", "--port", str(free_port()))
    assert result.returncode == 2
    assert missing in result.stderr
    assert "Traceback" not in result.stderr


def test_api_process_never_imports_torch(instance: Instance) -> None:
    """torch costs hundreds of MB and seconds; it belongs to the scheduler alone."""
    maps = Path(f"/proc/{instance.process.pid}/maps").read_text()
    assert "libtorch" not in maps
    assert json.loads(instance.http.get("/health/live").text)["pid"] == instance.process.pid
