"""`pdctl load` as an operator calls it, on a real server that plays an OpenAI-compatible endpoint."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import pdctl_process
from tests.fakes.http_server import FakeServer, Reply
from tests.unit.pdctl.load.test_generator import DONE, PATH, STREAM, TOKEN, silent
from tests.waiting import eventually


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """An endpoint that always answers `Paris Paris`."""
    routes = {PATH: Reply(TOKEN * 2 + DONE, headers=STREAM), "/v1/models": Reply({"data": [{"id": "some-model"}]})}
    with FakeServer(routes) as fake:
        yield fake


def named(server: FakeServer) -> tuple[str, ...]:
    """Return the arguments that name this target as it must be."""
    return server.url, "--target-name", f"127.0.0.1:{server.port}"


def test_a_load_ends_with_its_figures(server: FakeServer, tmp_path: Path) -> None:
    """Exit 0; the model's name was asked for, and every request carries it."""
    done = pdctl_process.run(
        tmp_path, "load", *named(server), "-n", "2", "--duration", "300ms", "--canary-rate", "0", "-o", "json"
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert set(figures["outcomes"]) == {"ok"}
    assert figures["tokens"] == 2 * figures["outcomes"]["ok"]
    models = {request.json()["model"] for request in server.requests if request.method == "POST"}
    assert models == {"some-model"}


def test_wrong_answers_make_exit_1(server: FakeServer, tmp_path: Path) -> None:
    """Every status is 200, and yet the content of the canaries is wrong; the table says it."""
    server.routes[PATH] = Reply(TOKEN.replace(b"Paris", b"bananas") + DONE, headers=STREAM)
    done = pdctl_process.run(tmp_path, "load", *named(server), "--duration", "300ms", "--canary-rate", "1")
    assert done.returncode == 1
    assert "wrong" in done.stdout
    assert "bananas" in done.stdout


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ((), "its name was not typed"),
        (("--target-name", "prod"), "prod is another one"),
        (("--target-name", "SELF", "-n", "500"), "at most 32"),
        (("--target-name", "SELF", "--abort-rate", "0.5"), "can wedge"),
        (("--target-name", "SELF", "--kill-after", "5s"), "can wedge"),
        (("--target-name", "SELF", "--bisect"), "can wedge"),
        (("--target-name", "SELF", "--may-break", "SELF", "--bisect"), "at most 32"),
    ],
)
def test_a_target_that_is_not_meant_gets_nothing(
    server: FakeServer, tmp_path: Path, more: tuple[str, ...], why: str
) -> None:
    """Exit 5, the reason on stderr, and no request was sent."""
    arguments = [f"127.0.0.1:{server.port}" if word == "SELF" else word for word in more]
    done = pdctl_process.run(tmp_path, "load", server.url, *arguments)
    assert done.returncode == 5
    assert why in done.stderr
    assert server.paths("POST") == []


@pytest.mark.parametrize(
    "wrong", [("--turns", "5-2"), ("--duration", "soon"), ("--abort-rate", "2"), ("-n", "0"), ("--think", "x")]
)
def test_a_wrong_value_names_its_flag(server: FakeServer, tmp_path: Path, wrong: tuple[str, str]) -> None:
    """Exit 2, and nothing was sent."""
    done = pdctl_process.run(tmp_path, "load", *named(server), *wrong)
    assert done.returncode == 2
    assert wrong[0].replace("-n", "--sessions") in done.stderr
    assert server.paths("POST") == []


def test_an_endpoint_that_does_not_tell_its_model(tmp_path: Path) -> None:
    """Exit 3, and what to do."""
    with FakeServer() as nothing:
        done = pdctl_process.run(tmp_path, "load", *named(nothing))
    assert done.returncode == 3
    assert "give it with --model" in done.stderr


def test_ctrl_c_prints_what_came_of_it(server: FakeServer, tmp_path: Path) -> None:
    """Exit 130, the figures so far, no traceback; every connection is closed."""
    server.routes[PATH] = silent
    with pdctl_process.start(tmp_path, "load", *named(server), "-n", "3", "--canary-rate", "0") as process:
        eventually(lambda: len(server.paths("POST")) == 3)
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "3 unfinished" in out
    assert "Traceback" not in err


def test_the_grid_is_printed_cell_by_cell(server: FakeServer, tmp_path: Path) -> None:
    """Eight cells, each with its interval; a small crowd where the target takes no larger one."""
    done = pdctl_process.run(
        tmp_path, "load", *named(server), "--bisect", "-n", "2", "--duration", "100ms", "-o", "json",
        *("--may-break", f"127.0.0.1:{server.port}"),
    )  # fmt: skip
    cells = json.loads(done.stdout)
    assert len(cells) == 8
    assert {cell["sessions"] for cell in cells} == {1, 2}
    assert all(0 <= cell["interval"][0] <= cell["interval"][1] <= 1 for cell in cells)
