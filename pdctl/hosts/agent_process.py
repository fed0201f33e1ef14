"""What runs on another host while pdctl works there: commands from stdin, what they did to stdout, one JSON line each.

Sent over stdin and run by `python3 -`: nothing is installed. Python 3.8 or later, only the standard library, no import
of pdctl. When stdin ends (pdctl is gone, or the connection is) everything it started is killed, and it ends too.

    hello      {"hello": 1, "time": .., "utc_offset_s": ..}
    request    {"id": n, "argv": [..], "stdin": base64, "env": {..}, "deadline_s": .., "most_bytes": .., "keep": ..}
               {"id": n, "address": .., "port": .., "stdin": base64, "deadline_s": .., "most_bytes": ..}
               {"cancel": n}
    answer     {"id": n, "end": .., "code": .., "stdout": base64, "stderr": .., "took_ms": .., "truncated": ..,
                "survivor": pid or null}
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import IO, Any

STDERR_MOST_BYTES = 64 << 10
CHUNK_BYTES = 256 << 10
AFTER_KILL_S = 0.5


class _Output:
    """At most so many bytes of a stream, read by a thread of its own."""

    def __init__(self, stream: IO[bytes], most_bytes: int, keep: str, on_full: Any) -> None:
        self.data = bytearray()
        self.was_cut = False
        self._stream = stream
        self._most = most_bytes
        self._is_tail = keep == "tail"
        self._on_full = on_full
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        while True:
            chunk = os.read(self._stream.fileno(), CHUNK_BYTES)
            if not chunk:
                return
            self.data += chunk
            # The tail is cut in large steps: a few bytes at a time from the front would copy it each time.
            if len(self.data) <= self._most * (2 if self._is_tail else 1):
                continue
            self.was_cut = True
            if not self._is_tail:
                del self.data[self._most :]
                self._on_full()
                return
            del self.data[: -self._most]


class _Command:
    """One request: a process group of its own, its deadline and its end."""

    def __init__(self, request: dict[str, Any], answer: Any) -> None:
        self._request = request
        self._answer = answer
        self._process: subprocess.Popen[bytes] | None = None
        self._is_unwanted = False
        self._is_timeout = False
        self._is_full = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def abandon(self) -> None:
        """End it, also if it is just being started; nobody wants its answer."""
        self._is_unwanted = True
        self.kill()

    def kill(self) -> None:
        """End everything of it."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except OSError:
                return

    def _run(self) -> None:
        request = self._request
        try:
            process = self._process = subprocess.Popen(
                request["argv"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **request["env"]},
                start_new_session=True,
            )
        except FileNotFoundError as error:
            return self._reply(end="missing", stderr=str(error))
        except OSError as error:
            return self._reply(end="not_started", stderr=str(error))
        if self._is_unwanted:
            self.kill()
        return self._converse(process)

    def _converse(self, process: subprocess.Popen[bytes]) -> None:
        started = time.monotonic()
        request = self._request
        timer = threading.Timer(request["deadline_s"], self._on_deadline)
        timer.daemon = True
        timer.start()
        out = _Output(process.stdout, request["most_bytes"], request["keep"], self._on_full)  # type: ignore[arg-type]
        err = _Output(process.stderr, STDERR_MOST_BYTES, "tail", None)  # type: ignore[arg-type]
        self._feed(process.stdin, base64.b64decode(request["stdin"]))  # type: ignore[arg-type]
        # Past the deadline all is killed. What outlives that, or left the group with our pipes, is not waited for.
        ends_at = started + request["deadline_s"] + AFTER_KILL_S
        out.thread.join(max(0.0, ends_at - time.monotonic()))
        if not self._is_full:
            err.thread.join(max(0.0, ends_at - time.monotonic()))
        survivor = self._reaped(process, max(AFTER_KILL_S, ends_at - time.monotonic()))
        timer.cancel()
        self.kill()
        end = "timeout" if self._is_timeout else "too_large" if self._is_full else "exited"
        self._reply(
            end=end,
            code=process.returncode if end == "exited" else None,
            stdout=base64.b64encode(bytes(out.data)).decode(),
            stderr=err.data.decode("utf-8", "replace"),
            took_ms=round((time.monotonic() - started) * 1000, 1),
            truncated=out.was_cut or end != "exited",
            survivor=survivor,
        )

    def _reaped(self, process: subprocess.Popen[bytes], within_s: float) -> int | None:
        """Wait for its end; return the pid of one that not even SIGKILL ends in time."""
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            return process.pid
        return None

    def _feed(self, stdin: IO[bytes], data: bytes) -> None:
        try:
            stdin.write(data)
            stdin.close()
        except OSError:
            return

    def _on_deadline(self) -> None:
        self._is_timeout = True
        self.kill()

    def _on_full(self) -> None:
        self._is_full = True
        self.kill()

    def _reply(self, **words: Any) -> None:
        if not self._is_unwanted:
            self._answer({"id": self._request["id"], **words})


class _Exchange:
    """What is sent to a port that only this host can reach, and all that comes until the other side closes.

    A `code` other than 0 is the errno of what failed.
    """

    def __init__(self, request: dict[str, Any], answer: Any) -> None:
        self._request = request
        self._answer = answer
        self._connection: socket.socket | None = None
        self._is_unwanted = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def abandon(self) -> None:
        """End it; nobody wants its answer."""
        self._is_unwanted = True
        if self._connection is not None:
            try:
                self._connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                return

    def _run(self) -> None:
        started, data = time.monotonic(), bytearray()
        end, code, words = "exited", 0, ""
        try:
            if not self._converse(data, started + self._request["deadline_s"]):
                end = "too_large"
        except socket.timeout:  # noqa: UP041 - another class than TimeoutError before Python 3.10
            end = "timeout"
        except OSError as error:
            code, words = error.errno or 1, error.strerror or str(error)
        if not self._is_unwanted:
            self._answer(
                {
                    "id": self._request["id"],
                    "end": end,
                    "code": code if end == "exited" else None,
                    "stdout": base64.b64encode(bytes(data)).decode(),
                    "stderr": words,
                    "took_ms": round((time.monotonic() - started) * 1000, 1),
                    "truncated": end != "exited",
                }
            )

    def _converse(self, data: bytearray, ends_at: float) -> bool:
        """Return whether there was not more than wanted."""
        place = (self._request["address"], self._request["port"])
        with socket.create_connection(place, self._request["deadline_s"]) as connection:
            self._connection = connection
            if self._is_unwanted:
                return True
            connection.sendall(base64.b64decode(self._request["stdin"]))
            while len(data) <= self._request["most_bytes"]:
                connection.settimeout(max(0.001, ends_at - time.monotonic()))
                piece = connection.recv(CHUNK_BYTES)
                if not piece:
                    return True
                data += piece
        return False


def main() -> None:
    """Serve until stdin ends."""
    lock = threading.Lock()
    running: dict[int, _Command | _Exchange] = {}

    def answer(words: dict[str, Any]) -> None:
        running.pop(words.get("id", 0), None)
        line = json.dumps(words).encode() + b"\n"
        try:
            with lock:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
        except OSError:
            os._exit(0)

    answer({"hello": 1, "time": time.time(), "utc_offset_s": time.localtime().tm_gmtoff})
    for line in iter(sys.stdin.buffer.readline, b""):
        request = json.loads(line)
        if "cancel" in request:
            command = running.pop(request["cancel"], None)
            if command is not None:
                command.abandon()
            continue
        kind = _Command if "argv" in request else _Exchange
        running[request["id"]] = kind(request, answer)
    left = list(running.values())
    for command in left:
        command.abandon()
    # Not for ever: a thread may wait for a process that not even SIGKILL ends.
    ends_at = time.monotonic() + AFTER_KILL_S
    for command in left:
        command.thread.join(max(0.0, ends_at - time.monotonic()))
    os._exit(0)


if __name__ == "__main__":
    main()
