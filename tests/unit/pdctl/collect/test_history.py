"""History from a real Prometheus, and from servers that are none."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from pdctl.collect import history
from pdctl.collect.context import Context, Deadline
from pdctl.collect.fetch import Fetcher
from pdctl.collect.records import Status, Taken
from pdctl.collect.target import Target
from pdctl.deployment.model import Instance, Role
from tests.fakes.bad_http import BadServer, hang, whole
from tests.serving.rig import free_port
from tests.waiting import eventually

# One name as Prometheus 2.42 stores it, one as the engine prints it.
METRICS = b'sglang_num_running_reqs{tp_rank="0"} 3\nsglang:num_queue_reqs{tp_rank="0"} 5\nother_series 1\n'


def needs(what: str, is_there: bool) -> None:
    if not is_there:
        if os.environ.get("CI") == "true":
            pytest.fail(f"needs {what}")
        pytest.skip(f"needs {what}")


def taken(url: str, engine_url: str) -> Taken:
    async def once() -> Taken:
        fetcher = Fetcher()
        instance = Instance(name="p", role=Role.PREFILL, dialect="sglang", url=engine_url)
        context = Context(fetcher=fetcher, deadline=Deadline(30))
        return (await history.take(Target(instance=instance), context, url))[0]

    return asyncio.run(once())


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A real Prometheus that scrapes one engine each second; gives both addresses."""
    program = os.environ.get("PDCTL_TEST_PROMETHEUS") or shutil.which("prometheus")
    needs("prometheus: apt-get install prometheus", program is not None)
    assert program is not None
    with BadServer({"/metrics": whole(METRICS)}) as engine:
        port = free_port()
        config = tmp_path / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s}\nscrape_configs: [{job_name: e, static_configs: "
            f"[{{targets: ['{engine.url.removeprefix('http://')}']}}]}}]\n"
        )
        argv = [program, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"]
        process = subprocess.Popen(
            [*argv, f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        url = f"http://127.0.0.1:{port}"
        try:
            eventually(lambda: _has_samples(url), 30)
            yield url, engine.url
        finally:
            process.kill()
            process.wait()


def _has_samples(url: str) -> bool:
    try:
        answer = httpx.get(f"{url}/api/v1/query", params={"query": "other_series"}, timeout=2)
    except httpx.TransportError:
        return False
    # 503 and plain text until its storage is open.
    return answer.status_code == 200 and bool(answer.json()["data"]["result"])


def test_both_spellings_of_a_name_are_found(prometheus: tuple[str, str]) -> None:
    """Colons and underscores alike; series that no dialect knows are not asked for."""
    needs("prometheus-api-client", importlib.util.find_spec("prometheus_api_client") is not None)
    item = taken(*prometheus)
    assert item.status is Status.OK, item.error
    found = msgspec.json.decode(item.content or b"", type=history.History)
    values = {
        str(series["metric"]["__name__"]): series["values"][-1][1]  # type: ignore[index]
        for series in found.series
    }
    assert values == {"sglang_num_running_reqs": "3", "sglang:num_queue_reqs": "5"}


def test_an_instance_that_prometheus_does_not_know_is_said_aloud(prometheus: tuple[str, str]) -> None:
    """An empty result is no history of zeros: the selector is named."""
    needs("prometheus-api-client", importlib.util.find_spec("prometheus_api_client") is not None)
    item = taken(prometheus[0], "http://192.0.2.1:30000")
    assert (item.status, item.content) == (Status.ABSENT, None)
    assert 'instance="192.0.2.1:30000"' in (item.error or "")


def test_a_prometheus_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes the question and never answers costs its deadline and no more."""
    needs("prometheus-api-client", importlib.util.find_spec("prometheus_api_client") is not None)
    monkeypatch.setattr(history, "HISTORY_S", 2.0)
    with BadServer({}, hang) as server:
        item = taken(server.url, "http://192.0.2.1:30000")
    assert item.content is None
    assert item.status in (Status.TIMEOUT, Status.FAILED)


def test_without_the_library_the_record_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """History is optional: its library missing is an absence with a remedy."""
    (tmp_path / "prometheus_api_client.py").write_text("raise ImportError('hidden')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    item = taken("http://127.0.0.1:9", "http://192.0.2.1:30000")
    assert item.status is Status.ABSENT
    assert "pip install prometheus-api-client" in (item.error or "")
