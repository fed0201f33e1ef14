"""The real API process over a fake scheduler: start, ask, wait, stop. Real engines: `tests/serving/rig.py`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from engine.messages import Generate
from tests.ports import free_port
from tests.waiting import eventually

REPOSITORY = Path(__file__).parents[3]
SERVE_FAKE = (sys.executable, str(Path(__file__).with_name("serve_fake.py")))
WAIT_S = 30.0


class Instance:
    """A running engine process and a client for it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
        self.process = process
        self.port = port
        self.folder = folder
        self.registry = ""
        """Of a prefill: where its registry answers."""
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx.Client(base_url=self.url, timeout=WAIT_S, trust_env=False)

    def post(self, path: str, body: object = None, request_id: str | None = None, **options: Any) -> httpx.Response:
        headers = {"X-Request-ID": request_id} if request_id else {}
        return self.http.post(path, json=body, headers=headers, **options)

    def error(self, path: str, body: object, **options: Any) -> tuple[int, dict[str, Any]]:
        """Return status and error object of a request that is refused."""
        response = self.post(path, body, **options)
        return response.status_code, response.json()["error"]

    def sent(self) -> list[Generate]:
        """Return what the API process sent to the fake scheduler so far."""
        lines = (self.folder / "sent.jsonl").read_bytes().splitlines()
        return [msgspec.json.decode(line, type=Generate) for line in lines]

    def reason(self, request_id: str) -> str | None:
        """Return why the legs of a request ended, once all have."""
        recent = self.http.get("/rooms/recent").json()["rooms"]
        live = self.http.get("/rooms").json()["rooms"]
        if any(room["request_id"] == request_id for room in live):
            return None
        reasons = {room["reason"] for room in recent if room["request_id"] == request_id}
        return ", ".join(sorted(reasons)) or None

    def is_live(self, request_id: str) -> bool:
        """Return whether the scheduler works on a request."""
        return any(room["request_id"] == request_id for room in self.http.get("/rooms").json()["rooms"])

    def health(self) -> int:
        """Return the status of /health; 0 while the port is closed."""
        try:
            return self.http.get("/health").status_code
        except httpx.TransportError:
            return 0

    def log(self) -> str:
        """Return what the process wrote to stderr."""
        return (self.folder / "stderr.log").read_text()

    def exit_code(self) -> int:
        """Wait for the process's end."""
        return self.process.wait(WAIT_S)


@contextmanager
def running(model: Path, folder: Path, role: str, *flags: str) -> Iterator[Instance]:
    """Start an instance and wait until it serves; kill it at the end, and its children with it."""
    instance = start(model, folder, role, *flags)
    try:
        eventually(lambda: instance.health() == 200 or instance.process.poll() is not None, WAIT_S)
        assert instance.process.poll() is None, instance.log()
        yield instance
    finally:
        stop(instance)


def start(model: Path, folder: Path, role: str, *flags: str, command: tuple[str, ...] = SERVE_FAKE) -> Instance:
    """Start an instance."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sent.jsonl").touch()
    port = free_port()
    environment = os.environ | {
        "PYTHONPATH": str(REPOSITORY),
        "FAKE_SENT": str(folder / "sent.jsonl"),
        "FAKE_GATE": str(folder / "gate"),
        "TMPDIR": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    arguments = ["--model", str(model), "--role", role, "--port", str(port), *flags]
    with (folder / "stderr.log").open("wb") as log:
        process = subprocess.Popen([*command, *arguments], stderr=log, env=environment, cwd=REPOSITORY)
    return Instance(process, port, folder)


def stop(instance: Instance) -> None:
    """End an instance that a test has not ended: twice SIGTERM means at once."""
    instance.http.close()
    if instance.process.poll() is None:
        instance.process.send_signal(signal.SIGTERM)
        try:
            instance.process.wait(0.5)
        except subprocess.TimeoutExpired:
            instance.process.send_signal(signal.SIGTERM)
            instance.process.wait(WAIT_S)
