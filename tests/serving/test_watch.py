"""`pdctl watch --daemon` on a real pair behind the real router, scraped by a real Prometheus."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from pdctl.watch.alerts import alert_rules
from tests.ports import free_port
from tests.serving.rig import Pair, Process, pair, router, until
from tests.serving.test_probe import deployment
from tests.serving.watching import watched

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def routed(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pair, Process]]:
    """A pair with the tiny model and smg in front of it."""
    folder = tmp_path_factory.mktemp("watched")
    with pair(tiny_model_dir, folder, "--dtype", "float64") as sides, router(sides, folder) as smg:
        yield sides, smg


@contextlib.contextmanager
def stopped(process: Process) -> Iterator[None]:
    """Stop an engine with all its processes, and let it go on."""
    root = psutil.Process(process.pid)
    processes = [root, *root.children(recursive=True)]
    for one in processes:
        os.kill(one.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for one in processes:
            os.kill(one.pid, signal.SIGCONT)


@contextlib.contextmanager
def load(smg: Process, streams: int) -> Iterator[None]:
    """Keep streams in flight through the router."""
    is_over = threading.Event()

    def stream() -> None:
        body = {"text": "once upon a time", "sampling_params": {"max_new_tokens": 200, "ignore_eos": True}}
        while not is_over.is_set():
            with contextlib.suppress(httpx.HTTPError):
                smg.post("/generate", body, timeout_s=60)

    threads = [threading.Thread(target=stream) for _ in range(streams)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def is_confirmed(verdict: str) -> Any:
    return lambda sight: sight["confirmed"] == verdict


def test_a_pair_that_works_alarms_nobody(routed: tuple[Pair, Process], tmp_path: Path) -> None:
    """Streams in flight for some time longer than patience: no judgement says wedged or failing."""
    with load(routed[1], 6), watched(tmp_path, deployment(routed), "--interval", "0.5", "--probe-every", "5") as daemon:
        daemon.until(is_confirmed("healthy"), 60)
        first = daemon.seen[-1]["at"]
        daemon.until(lambda sight: len(daemon.seen) >= 40 and sight["window_s"] >= 10, 120)
    assert not [sight for sight in daemon.seen if sight["verdict"] in ("wedged", "failing") and sight["at"] >= first]


@contextlib.contextmanager
def scraping(prometheus: str, folder: Path, target: str) -> Iterator[str]:
    """Run a Prometheus with our rules that scrapes `target` each second; yields its URL."""
    address = f"127.0.0.1:{free_port()}"
    (folder / "alerts.yml").write_text(alert_rules())
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        "rule_files: [alerts.yml]\n"
        f"scrape_configs: [{{job_name: pdctl, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    command = [
        prometheus,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(20)


def firing(url: str) -> set[str]:
    """Return the names of the alerts that fire; none while Prometheus is not up."""
    try:
        answer = httpx.get(url + "/api/v1/alerts", timeout=5, trust_env=False).json()
    except httpx.TransportError:
        return set()
    return {one["labels"]["alertname"] for one in answer["data"]["alerts"] if one["state"] == "firing"}


def fired(url: str, *names: str) -> set[str]:
    """Return what fires if all of these do, else nothing."""
    found = firing(url)
    return found if found.issuperset(names) else set()


@dataclass(frozen=True)
class Episode:
    """What the daemon saw, and a Prometheus that scraped it, before, while and after decode was stopped."""

    healthy: dict[str, Any]
    wedged: dict[str, Any]
    recovered: dict[str, Any]
    alarms: list[set[str]]
    """Before, and while; empty where there is no Prometheus."""


@pytest.fixture(scope="module")
def episode(routed: tuple[Pair, Process], tmp_path_factory: pytest.TempPathFactory) -> Episode:
    """One wedge for all who look at it."""
    folder, prometheus = tmp_path_factory.mktemp("episode"), shutil.which("prometheus")
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(watched(folder, deployment(routed)))
        address = daemon.url.removeprefix("http://").removesuffix("/metrics")
        url = stack.enter_context(scraping(prometheus, folder, address)) if prometheus else ""
        healthy = daemon.until(is_confirmed("healthy"), 60)
        alarms = [firing(url)] if url else []
        with stopped(routed[0].decode):
            wedged = daemon.until(is_confirmed("wedged"), 90)
            if url:
                alarms.append(until(lambda: fired(url, "PDWedged", "PDCause"), 30, "the alerts fire"))
        recovered = daemon.until(is_confirmed("healthy"), 90)
    until(routed[0].is_idle, 30, "idle again")
    return Episode(healthy, wedged, recovered, alarms)


def test_an_idle_pair_is_proven_by_the_canary_and_its_stop_is_a_wedge(episode: Episode) -> None:
    """Healthy only once a request has passed; wedged when decode is stopped; healthy when it goes on."""
    assert [one["passed"] for one in episode.healthy["canaries"]]
    assert episode.wedged["causes"][0]["code"] == "PD0305"
    assert {one["name"]: one["state"] for one in episode.wedged["instances"]}["decode-0"] == "stopped"
    assert episode.recovered["confirmed"] == "healthy"


def test_a_real_prometheus_alarms_of_a_wedge(episode: Episode) -> None:
    """It scrapes the daemon, and PDWedged fires while decode is stopped, and not before."""
    if not episode.alarms:
        message = "prometheus is not here: install Debian's package prometheus"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    before, wedged = episode.alarms
    assert "PDWedged" not in before
    assert {"PDWedged", "PDCause"} <= wedged
