"""Which code a running process uses: real processes, with packages made for them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pdctl.collect import gpu, host_processes, source
from pdctl.collect.context import Context, Deadline
from pdctl.collect.fetch import Fetcher
from pdctl.collect.host_facts import HostFacts
from pdctl.collect.records import Taken
from pdctl.collect.target import Target
from pdctl.deployment.model import Instance, Role

CONN = "srt/disaggregation/nixl/conn.py"
HANDLES_ABORT = 'self.record_failure(room, "Aborted by decode-side abort notification.")\n'


class Engine:
    """A process whose working directory holds a package named sglang, as `python -m sglang...` finds it."""

    def __init__(self, folder: Path, text: str) -> None:
        self.conn = folder / "sglang" / CONN
        self.conn.parent.mkdir(parents=True)
        self.conn.write_text(text)
        (folder / "sglang" / "__init__.py").touch()
        info = folder / "sglang-0.5.16.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Name: sglang\nVersion: 0.5.16\n")
        for path in folder.rglob("*"):
            os.utime(path, (1_700_000_000, 1_700_000_000))
        self.process = subprocess.Popen(
            [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "--api-key", "sk-1"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"UCX_TLS": "tcp", "SGLANG_API_KEY": "sk-2"},
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def facts(self) -> dict[str, Any]:
        """Return source.toml as the collector writes it."""

        async def once() -> list[Taken]:
            fetcher = Fetcher()
            context = Context(fetcher=fetcher, deadline=Deadline(30), get_timeout_s=0.2)
            instance = Instance(name="p", role=Role.PREFILL, dialect="sglang", url="http://127.0.0.1:9")
            target = Target(instance=instance, pid=self.process.pid)
            table = await host_processes.read((self.process.pid,), deadline_s=10)
            sources = await source.read([target], context)
            host = HostFacts(table=table, kernel=Taken(name="kernel.txt"), gpus=gpu.Gpus(), sources=sources)
            return await source.take(target, context, host)

        (taken,) = asyncio.run(once())
        assert taken.error is None, taken.error
        return tomllib.loads((taken.content or b"").decode())


@pytest.fixture
def engine(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    started = Engine(tmp_path, getattr(request, "param", HANDLES_ABORT))
    yield started
    started.process.communicate()


def test_version_path_flags_and_switches_of_the_running_process(engine: Engine) -> None:
    """What the process was started with is there, without its keys."""
    facts = engine.facts()
    assert facts["version"] == "0.5.16"
    assert facts["package_path"] == str(engine.conn.parents[3])
    assert facts["flags"][-2:] == ["--api-key", "***"]
    assert facts["env"] == {"SGLANG_API_KEY": "***", "UCX_TLS": "tcp"}
    assert facts["newer_count"] == 0


@pytest.mark.parametrize(("engine", "has_fix"), [(HANDLES_ABORT, True), ("pass\n", False)], indirect=["engine"])
def test_a_fix_is_told_from_the_file_that_runs(engine: Engine, has_fix: bool) -> None:
    """The text of the loaded file decides, not the version."""
    assert engine.facts()["fixes"] == {"nixl_abort_handler": has_fix}


def test_a_file_changed_since_the_start_tells_nothing_of_the_process(engine: Engine) -> None:
    """It is listed as newer, what a restart would deploy too; whether the fix runs is unknown."""
    later = time.time() + 5
    os.utime(engine.conn, (later, later))
    facts = engine.facts()
    assert facts["fixes"] == {}
    assert (facts["newer_files"], facts["newer_count"]) == ([f"sglang/{CONN}"], 1)
