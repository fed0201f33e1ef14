"""One connection to another host: an agent that was sent over stdin, and the commands that it runs there.

    opening ──marker, hello──> open ──stdin closed | connection lost──> over
       └────── OPEN_S passed | ssh says why ───────────────────────────> over

One connection carries everything, so a host costs one login however much is asked of it.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import queue
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from pathlib import Path

import msgspec

from pdctl.hosts import agent_process
from pdctl.hosts.child import Child, End, Keep
from pdctl.hosts.host import Clock

OPEN_S = 10.0
"""Above ssh's own ConnectTimeout; a host that accepts and says nothing is given up then."""
CLOSE_S = 0.5
MARKER = b"pdctl-agent-ready\n"
NO_PYTHON = b"pdctl-no-python3\n"
# The shell must not read ahead what is meant for Python: nothing more is sent before the marker has come.
BOOTSTRAP = (
    b"command -v python3 >/dev/null || { echo pdctl-no-python3; exit 97; }; "
    b'exec python3 -I -S -c \'import sys; print("pdctl-agent-ready", flush=True); i = sys.stdin.buffer; '
    b'exec(compile(i.read(int(i.readline())), "pdctl-agent", "exec"))\'\n'
)


class _Hello(msgspec.Struct, frozen=True):
    time: float
    utc_offset_s: float


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    end: End
    code: int | None = None
    stdout: bytes = b""
    stderr: str = ""
    took_ms: float = 0.0
    truncated: bool = False
    survivor: int | None = None


class Session:
    """One agent. Every method returns at once; what goes wrong ends in the futures."""

    def __init__(self, name: str, argv: Sequence[str]) -> None:
        """Begin to connect. `argv` runs `sh` there, with our pipe as its stdin."""
        self._name = name
        self._argv = tuple(argv)
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[Future[Child], tuple[str, ...]]] = {}
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the thread that reads its end
        self._process: subprocess.Popen[bytes] | None = None
        self.clock: Clock | None = None
        self.problem: str | None = None
        """Why it is over; None while it opens or is open."""
        self.ended_at = 0.0
        self._thread = threading.Thread(target=self._live, daemon=True, name=f"host {name}")
        self._thread.start()

    def submit(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        most_bytes: int,
        keep: Keep,
        stdin: bytes,
        env: Mapping[str, str] | None,
    ) -> tuple[int, Future[Child]]:
        """Run a command there as soon as the session is open; return its number and its outcome to be."""
        request = {
            "argv": list(argv),
            "stdin": base64.b64encode(stdin).decode(),
            "env": dict(env or {}),
            "deadline_s": deadline_s,
            "most_bytes": most_bytes,
            "keep": keep.value,
        }
        return self._asked(request, tuple(argv))

    def exchange(
        self, address: str, port: int, data: bytes, *, deadline_s: float, most_bytes: int
    ) -> tuple[int, Future[Child]]:
        """Send bytes to a port there and take what comes until it closes; a `code` other than 0 is an errno."""
        request = {
            "address": address,
            "port": port,
            "stdin": base64.b64encode(data).decode(),
            "deadline_s": deadline_s,
            "most_bytes": most_bytes,
        }
        return self._asked(request, (f"{address}:{port}",))

    def _asked(self, request: dict[str, object], words: tuple[str, ...]) -> tuple[int, Future[Child]]:
        number, outcome = next(self._ids), Future[Child]()
        with self._lock:
            if self.problem is not None:
                outcome.set_result(self._unreachable(words, self.problem))
                return number, outcome
            self._waiting[number] = (outcome, words)
        self._outbox.put(msgspec.json.encode({"id": number, **request}) + b"\n")
        return number, outcome

    def cancel(self, number: int) -> None:
        """Kill what a command started there; its outcome is nobody's any more."""
        with self._lock:
            self._waiting.pop(number, None)
        self._outbox.put(msgspec.json.encode({"cancel": number}) + b"\n")

    def close(self) -> None:
        """End the agent, and what it runs; wait until the connection is gone, but not for long."""
        self._outbox.put(None)
        if self.clock is None:  # it runs nothing yet, and may never open
            self._kill()
        self._thread.join(CLOSE_S)
        self._kill()

    def _live(self) -> None:
        try:
            process = self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._words,
                # Ctrl-C at the terminal is pdctl's to answer.
                start_new_session=True,
            )
        except OSError as error:
            self._end(f"{self._name}: {self._argv[0]} cannot be run: {error.strerror}")
            return
        # Also where nobody closes it: one that hangs would not notice that pdctl has ended.
        at_exit = weakref.finalize(self, process.kill)
        timer = threading.Timer(OPEN_S, self._kill)
        timer.daemon = True
        timer.start()
        try:
            problem = self._open(process)
            timer.cancel()
            if problem is None:
                threading.Thread(target=self._write, args=(process,), daemon=True).start()
                problem = self._read(process)
        except (OSError, ValueError, msgspec.DecodeError) as error:
            problem = self._lost(process, f"the connection broke: {error}")
        finally:
            timer.cancel()
            self._kill()
            process.wait()
            at_exit.detach()
        self._end(problem)
        _close(process)

    def _open(self, process: subprocess.Popen[bytes]) -> str | None:
        """Shake hands; return why that failed."""
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(BOOTSTRAP)
        process.stdin.flush()
        # What a login script prints comes first.
        while (line := process.stdout.readline()) != MARKER:
            if line == NO_PYTHON:
                return f"{self._name} has no python3, which pdctl's part there needs: install it, or read its HTTP only"
            if not line:
                return self._lost(process, f"no session within {OPEN_S:g} s")
        program = Path(agent_process.__file__).read_bytes()
        sent_at = time.time()
        process.stdin.write(f"{len(program)}\n".encode() + program)
        process.stdin.flush()
        hello = msgspec.json.decode(process.stdout.readline(), type=_Hello)
        came_at = time.time()
        offset_s = hello.time - (sent_at + came_at) / 2
        # What is below the error of the measurement is none.
        self.clock = Clock(offset_s if abs(offset_s) > came_at - sent_at else 0.0, hello.utc_offset_s)
        return None

    def _write(self, process: subprocess.Popen[bytes]) -> None:
        """Pass requests on; a connection that stands still blocks this thread alone."""
        assert process.stdin is not None
        try:
            while (line := self._outbox.get()) is not None:
                process.stdin.write(line)
                process.stdin.flush()
            process.stdin.close()
        except (OSError, ValueError):
            return  # The reader sees the end too, and tells it.

    def _read(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        decoder = msgspec.json.Decoder(_Answer)
        for line in process.stdout:
            answer = decoder.decode(line)
            with self._lock:
                outcome, argv = self._waiting.pop(answer.id, (None, ()))
            if outcome is not None:
                _settle(outcome, self._child(answer, argv))
        return self._lost(process, "the connection was closed")

    def _child(self, answer: _Answer, argv: tuple[str, ...]) -> Child:
        fields = msgspec.structs.asdict(answer)
        del fields["id"]
        return Child(argv=argv, where=f"on {self._name}", **fields)

    def _lost(self, process: subprocess.Popen[bytes], otherwise: str) -> str:
        """Return why there is no connection, in ssh's own words where it left some."""
        self._words.seek(max(0, self._words.seek(0, os.SEEK_END) - 2000))
        lines = [line for line in self._words.read().decode("utf-8", "replace").splitlines() if line.strip()]
        words = lines[-1].strip() if lines else otherwise
        hint = next((f"; {remedy}" for sign, remedy in _REMEDIES if sign in "\n".join(lines)), "")
        return f"{self._name} cannot be reached: {words}{hint}"

    def _end(self, problem: str) -> None:
        with self._lock:
            self.problem, self.ended_at = problem, time.monotonic()
            left, self._waiting = self._waiting, {}
        self._outbox.put(None)
        self._words.close()
        for outcome, argv in left.values():
            _settle(outcome, self._unreachable(argv, problem))

    def _unreachable(self, argv: tuple[str, ...], problem: str) -> Child:
        return Child(argv=argv, end=End.UNREACHABLE, stderr=problem, where=f"on {self._name}", truncated=True)

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()


_REMEDIES = (
    ("Host key verification failed", "compare its key and connect once by hand; pdctl never skips that check"),
    ("Permission denied", "pdctl asks for no password: give it a key or an agent that ssh can use unattended"),
    ("Could not resolve", "correct the name in pd.toml, or add it to ~/.ssh/config"),
)


def _close(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # what was not sent yet
            if stream is not None:
                stream.close()


def _settle(outcome: Future[Child], child: Child) -> None:
    try:
        outcome.set_result(child)
    except InvalidStateError:
        return  # Who waited has given up.
