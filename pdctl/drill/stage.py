"""The deployment that a drill breaks: its own processes, its own ports, its own state; gone when the drill ends."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import psutil

from pdctl import signals
from pdctl.collect.http import InstanceClient, Timeouts, client_for
from pdctl.deployment import shutdown
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.deployment.state import StateFolder
from pdctl.errors import NotProven, PdctlError
from pdctl.evidence.exposition import parse_exposition
from pdctl.load.background import BackgroundLoad
from pdctl.load.canaries import ScoredAnswers
from pdctl.load.profile import Profile
from pdctl.load.wire import Endpoint
from pdctl.managers import shim
from pdctl.probe import Verdict, prove

START_S = 120.0
STOP_S = 2.0
RESTART = "on-failure"
POLL_S = 0.2
LEAST_PATIENCE_S = 5.0
HANGS_RATIO = 5.0
"""A request that takes so many times as long as it did before the fault is one that hangs."""
SERVED_S = 60.0
_ASK = Timeouts(connect_s=1.0, read_s=2.0, total_s=3.0)

Say = Callable[[str], None]


class Stage:
    """A running deployment and what may be done to it. Made by `staging.py`."""

    def __init__(self, folder: StateFolder, deployment: Deployment, say: Say, *, is_own: bool = True) -> None:
        self.folder = folder
        self.is_own = is_own
        self.deployment = deployment
        self.say = say
        self.load: BackgroundLoad | None = None
        self._undo = contextlib.ExitStack()
        self._patience_s = LEAST_PATIENCE_S
        self._mend: Callable[[], object] | None = None

    @property
    def prefill(self) -> Instance:
        """Return the first prefill."""
        return self.deployment.of_role(Role.PREFILL)[0]

    @property
    def decode(self) -> Instance:
        """Return the first decode."""
        return self.deployment.of_role(Role.DECODE)[0]

    def start_load(self, profile: Profile) -> BackgroundLoad:
        """Run a load through the router until the stage closes; a second call replaces the first."""
        self.stop_load()
        router = self.deployment.router
        assert router is not None, "a drill's deployment has a router"
        canaries = ScoredAnswers(self.prefill)
        endpoint = Endpoint(url=router.url, model=self.deployment.model)
        self.load = BackgroundLoad(endpoint, profile, canaries)
        self.load.__enter__()
        self._undo.callback(canaries.close)
        return self.load

    def stop_load(self) -> None:
        """End the load, if there is one."""
        if self.load is not None:
            self.load.stop()

    def answered(self) -> int:
        """Return how many requests of the load were answered whole."""
        return self.load.figures().outcomes.get("ok", 0) if self.load is not None else 0

    def is_loaded(self) -> bool:
        """Return whether requests of the load have ended, however."""
        return self.load is not None and self.load.figures().requests > 0

    def switch(self, instance: Instance, failpoint: str, on: bool = True) -> None:
        """Switch a failpoint. Raises PdctlError where the instance does not take it."""
        with client_for(instance, _ASK) as client:
            answer = client.post("/failpoints", {"name": failpoint, "on": on})
        if not answer.ok:
            said = answer.body[:200].decode("utf-8", "replace")
            raise PdctlError(f"{instance.name} does not take failpoint {failpoint}: {answer.describe()} {said}")

    def abort(self, instance: Instance, rid: str) -> None:
        """End one request on one instance. Raises PdctlError where it does not take that."""
        with client_for(instance, _ASK) as client:
            answer = client.post("/abort_request", {"rid": rid})
        if not answer.ok:
            raise PdctlError(f"{instance.name} does not end request {rid}: {answer.describe()}")

    def get(self, instance: Instance, path: str) -> Any:
        """Return the JSON that an instance answers, whatever its status; an empty object where it does not."""
        with client_for(instance, _ASK) as client:
            body = client.get(path).body
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError:
            return {}

    def oldest_s(self, instance: Instance, phase: str) -> float:
        """Return how long the oldest request of an engine is in a phase of engine/scheduler/sequence.py, as it says."""
        return float(self.get(instance, "/v1/loads").get("oldest_age_s", {}).get(phase, 0.0))

    def metric(self, instance: Instance, name: str, **labels: str) -> float | None:
        """Return the sum of a metric's samples that carry these labels; None where there is none."""
        with client_for(instance, _ASK) as client:
            exposition, _ = parse_exposition(client.get("/metrics").body, instance.name)
        samples = exposition.series.get(name, ()) if exposition else ()
        fitting = [item.value for item in samples if labels.items() <= item.labels.items()]
        return sum(fitting) if fitting else None

    def must_serve(self) -> None:
        """Send one real request, and learn how long one takes here. Raises NotProven where it does not get through."""
        began = time.monotonic()
        if not self.passes(SERVED_S):
            raise NotProven(
                "the deployment does not serve before the fault", f"pdctl diagnose --name {self.folder.name}"
            )
        self._patience_s = max(LEAST_PATIENCE_S, HANGS_RATIO * (time.monotonic() - began))

    def passes(self, within_s: float | None = None) -> bool:
        """Send one real request to the pair and return whether it got through, right and in time."""
        pair = msgspec.structs.replace(self.deployment, instances=(self.prefill, self.decode))
        patience_s = self._patience_s if within_s is None else within_s
        try:
            return prove(pair, direct=True, prompt_tokens=48, timeout_s=patience_s).verdict is Verdict.PROVEN
        except PdctlError as error:
            self.say(f"no request could be sent: {error.message}")
            return False

    def until(self, condition: Callable[[], bool], limit_s: float, what: str) -> None:
        """Wait until something is true. Raises NotProven."""
        ends_at = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() >= ends_at:
                raise NotProven(f"{what}: not within {limit_s:g} s", f"logs: {self.folder.folder / 'logs'}")
            time.sleep(POLL_S)

    def processes(self, instance: Instance) -> list[psutil.Process]:
        """Return the process of an instance and its descendants; empty where it does not run."""
        pid = shim.observe(self.folder.paths(instance.name)).pid
        with contextlib.suppress(psutil.NoSuchProcess):
            if pid is not None:
                parent = psutil.Process(pid)
                return [parent, *parent.children(recursive=True)]
        return []

    def signal(self, instance: Instance, number: signal.Signals) -> None:
        """Send a signal to every process of an instance."""
        for process in self.processes(instance):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def shim_pid(self, instance: Instance) -> int:
        """Return the pid of the shim that starts an instance again. Raises PdctlError where there is none."""
        record = shim.observe(self.folder.paths(instance.name)).record
        if record is None:
            raise PdctlError(f"{instance.name} has no shim", f"pdctl status --name {self.folder.name}")
        return record.shim_pid

    def restarts(self, instance: Instance) -> int:
        """Return how often the shim started an instance again."""
        record = shim.observe(self.folder.paths(instance.name)).record
        return record.restarts if record else 0

    def restart(self, instance: Instance, flags: tuple[str, ...] = (), *, waits: bool = True) -> None:
        """Kill an instance and start it again, with these flags more; what `up` kept is left as it is."""
        paths = self.folder.paths(instance.name)
        assert instance.start is not None, "a drill's instances have a start command"
        with self.folder.locked(self.say):
            shutdown.take_down(self.folder, [instance], deadline_s=0.0)
            argv = (*instance.start, *flags)
            shim.start(instance.name, argv, instance.env, paths, cwd=self.folder.folder, restart=RESTART)
        if waits:
            self.until(lambda: self.get(instance, "/health").get("status") == "ok", START_S, f"{instance.name} healthy")

    def legs(self, body: dict[str, object]) -> dict[str, object]:
        """Return the body that a router would send to both legs."""
        return {
            **body,
            "bootstrap_host": "127.0.0.1",
            "bootstrap_port": self.prefill.bootstrap_port,
            "bootstrap_room": random.getrandbits(62),
        }

    def hold(self, instance: Instance, path: str, body: dict[str, object], seconds: float) -> threading.Thread:
        """Send a request to one instance in the background; its client leaves after that time, or with the stage."""
        client = client_for(instance, Timeouts(connect_s=2.0, read_s=seconds, total_s=seconds))
        self._undo.callback(client.close)
        thread = threading.Thread(target=_posted, args=(client, path, body), daemon=True)
        thread.start()
        return thread

    def mend_by(self, act: Callable[[], object]) -> None:
        """Say what takes the cause away, where no restart would."""
        self._mend = act

    def mend(self) -> None:
        """Take the cause away; what its operator would correct."""
        if self._mend is not None:
            self._mend()

    def finally_do(self, act: Callable[[], object]) -> None:
        """Do this when the stage closes."""
        self._undo.callback(act)

    def close(self) -> None:
        """End the load and, of an own deployment, every process.

        A restart that is under way is waited for first, or it would outlive us.
        """
        with signals.ignored():
            try:
                self.stop_load()
                self._undo.close()
            finally:
                if self.is_own:
                    with self.folder.locked(self.say):
                        shutdown.take_down(self.folder, self.deployment.instances, deadline_s=STOP_S)


def _posted(client: InstanceClient, path: str, body: dict[str, object]) -> None:
    with contextlib.suppress(RuntimeError):  # httpx: the client was closed, which is how the stage ends it
        client.post(path, body)
