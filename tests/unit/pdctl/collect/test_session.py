"""Whole collections of servers that hang, over real sockets; the evidence is read back as the analysis reads it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.collect.session import Collector, collect
from pdctl.deployment import files
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.deployment.state import StateFolder
from pdctl.errors import PdctlError, UsageError
from pdctl.evidence.directory import read_directory
from tests.fakes.bad_http import BadServer, drip_headers, not_found, whole
from tests.unit.pdctl.evidence.planted import credential, secret
from tests.waiting import eventually

DEATH = b"[2026-06-19 01:00:00 TP0] Exception in thread Thread-7 (bootstrap_thread):"
PRINTS = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = Path(sys.argv[1]).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = HTTPServer(("127.0.0.1", 0), Handler)
draft = Path(sys.argv[2] + ".part")
draft.write_text(str(server.server_port))
draft.rename(sys.argv[2])
server.serve_forever()
"""
METRICS = b'sglang:num_running_reqs{tp_rank="0"} %d.0\n'


def deployment(*urls: str) -> Deployment:
    return Deployment(
        name="lab",
        model="m",
        instances=tuple(
            Instance(name=f"prefill-{at}", role=Role.PREFILL, dialect="sglang", url=url) for at, url in enumerate(urls)
        ),
    )


def test_with_everything_hung_the_directory_is_complete_in_time(tmp_path: Path) -> None:
    """Endpoints that hang or drip leave records of timeouts, and the collection ends by its deadline."""
    with BadServer({"/health": drip_headers}) as one, BadServer({"/metrics": drip_headers}) as two:
        summary = collect(deployment(one.url, two.url), interval_s=0.2, timeout_s=3, out=tmp_path / "incident")
    assert summary.took_s < 6
    assert not summary.is_complete
    assert {(item.instance, item.file) for item in summary.missing} >= {
        ("prefill-0", "metrics.txt"),
        ("prefill-1", "metrics.txt"),
        ("prefill-0", "server_info.json"),
    }
    evidence = read_directory(tmp_path / "incident")
    assert evidence.problems == ()
    assert [item.gets[0].error for item in evidence.instances] == ["timeout", "timeout"]
    assert evidence.instances[0].metrics is None
    assert "timeout" in evidence.instances[0].capture.failed["metrics.txt"]


def test_two_samples_are_told_apart(tmp_path: Path) -> None:
    """The earlier scrape is the previous one, and the time between them is in the topology."""
    counts = iter(range(5, 100))

    def counting(connection, stop) -> None:  # type: ignore[no-untyped-def]
        whole(METRICS % next(counts))(connection, stop)

    with BadServer({"/metrics": counting, "/health": whole(b"")}, not_found) as server:
        collect(deployment(server.url), interval_s=1.0, timeout_s=10, out=tmp_path / "incident")
    evidence = read_directory(tmp_path / "incident")
    instance = evidence.instances[0]
    assert instance.metrics_prev is not None
    assert instance.metrics is not None
    assert instance.metrics_prev.series["sglang:num_running_reqs"][0].value == 5
    assert instance.metrics.series["sglang:num_running_reqs"][0].value == 6
    assert evidence.interval_s == pytest.approx(1.0, abs=0.9)


def test_sampling_again_keeps_the_first_sample(tmp_path: Path) -> None:
    """While a stall is suspected the span grows: the first sample stays, the second is replaced."""
    counts = iter(range(5, 100))

    def counting(connection, stop) -> None:  # type: ignore[no-untyped-def]
        whole(METRICS % next(counts))(connection, stop)

    with BadServer({"/metrics": counting, "/health": whole(b"")}, not_found) as server:
        collector = Collector(deployment(server.url), tmp_path / "incident", folder=StateFolder(tmp_path, "lab"))
        collector.take(interval_s=0.1, timeout_s=10)
        first = read_directory(tmp_path / "incident")
        summary = collector.again(timeout_s=10)
    later = read_directory(tmp_path / "incident")
    values = [
        (sample.series["sglang:num_running_reqs"][0].value if sample else None)
        for evidence in (first, later)
        for sample in (evidence.instances[0].metrics_prev, evidence.instances[0].metrics)
    ]
    assert values == [5, 6, 5, 7]
    # What was done to the system counts from the beginning: three scrapes and the other questions of three samples.
    assert summary.intrusion.requests > 3 * 3
    assert later.captured_prev_at == first.captured_prev_at
    assert (later.interval_s or 0) > (first.interval_s or 0)


def test_credentials_do_not_reach_the_disk(tmp_path: Path) -> None:
    """Keys that an engine tells about itself are masked in every file."""
    info = b'{"version":"0.5.16","api_key":"sk-verysecret","admin_api_key": "alsosecret", "token_usage": 5}'
    routes = {"/server_info": whole(info), "/health": whole(b"Authorization: Bearer abcdef123456")}
    with BadServer(routes, not_found) as server:
        collect(deployment(server.url), interval_s=0.1, timeout_s=10, out=tmp_path / "incident")
    text = b"".join(path.read_bytes() for path in (tmp_path / "incident").rglob("*") if path.is_file())
    assert b"verysecret" not in text
    assert b"alsosecret" not in text
    assert b"abcdef123456" not in text
    assert b'"token_usage": 5' in text


@pytest.mark.parametrize("seed", range(3))
def test_no_planted_credential_reaches_the_disk(tmp_path: Path, seed: int) -> None:
    """Of a process that prints, answers and was started with secrets: none in any file, nothing masked later."""
    chance = random.Random(seed)
    plants = [credential(chance) for _ in range(90)]
    texts = [plant.text for plant in plants]
    flag = secret(chance)
    log = tmp_path / "engine.log"
    # The rotation falls in the middle of a line.
    printed = "\n".join(texts[:30]).encode()
    log.with_name("engine.log.1").write_bytes(printed[: len(printed) // 2])
    os.utime(log.with_name("engine.log.1"), (1, 1))
    rest = printed[len(printed) // 2 :] + b"\n" + DEATH + b" " + texts[30].encode() + b"\nlast words\n"
    (tmp_path / "body").write_text("\n".join(texts[31:]))
    with log.open("wb") as out:
        out.write(rest)
        out.flush()
        argv = [sys.executable, "-c", PRINTS, str(tmp_path / "body"), str(tmp_path / "port"), "--api-key", flag]
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.DEVNULL)
    try:
        eventually((tmp_path / "port").exists)
        url = f"http://127.0.0.1:{(tmp_path / 'port').read_text()}"
        collect(deployment(url), interval_s=0.1, timeout_s=15, out=tmp_path / "incident")
    finally:
        process.kill()
        process.wait()
    kept = {path: path.read_bytes() for path in (tmp_path / "incident").rglob("*") if path.is_file()}
    assert b"last words" in kept[tmp_path / "incident" / "prefill-0" / "log.txt"]
    assert b"***" in kept[tmp_path / "incident" / "prefill-0" / "http.toml"]
    assert b"--api-key" in kept[tmp_path / "incident" / "prefill-0" / "process.toml"]
    forbidden = [flag, *(form for plant in plants for form in plant.forbidden)]
    # A piece of a secret is one too.
    pieces = {form[at : at + 16] for form in forbidden for at in range(0, len(form) - 15, 4)}
    whole = b"\n".join(kept.values()).decode("utf-8", "replace")
    assert [piece for piece in sorted(pieces) if piece in whole] == []
    assert read_directory(tmp_path / "incident").instances[0].log


def test_files_are_for_this_user_alone(tmp_path: Path) -> None:
    """Logs may quote prompts: folders are 0700, files 0600."""
    with BadServer({"/health": whole(b"")}, not_found) as server:
        collect(deployment(server.url), interval_s=0.1, timeout_s=10, out=tmp_path / "incident")
    paths = [tmp_path / "incident", *(tmp_path / "incident").rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_file()} == {0o600}


def test_an_instance_on_a_host_that_cannot_be_reached_is_read_by_http_only(tmp_path: Path) -> None:
    """What cannot be seen from here is said so, with what to do; nothing of this host is put in its place."""
    with BadServer({"/health": whole(b""), "/metrics": whole(METRICS % 1)}, not_found) as server:
        host = "exec:sh -c 'echo no route to node7 >&2; false' #"
        # An address that is no loopback is asked from here.
        url = server.url.replace("127.0.0.1", "0.0.0.0")
        instance = Instance(name="far", role=Role.DECODE, dialect="sglang", url=url, host=host)
        far = Deployment(name="lab", model="m", instances=(instance,))
        collect(far, interval_s=0.1, timeout_s=10, out=tmp_path / "incident")
    capture = tomllib.loads((tmp_path / "incident" / "far" / "capture.toml").read_text())
    status = {item["name"]: item["status"] for item in capture["file"]}
    assert status["metrics.txt"] == "ok"
    unread = {"process.toml", "log.txt", "kernel.txt", "gpu.toml", "source.toml"}
    assert {name for name in unread if status[name] == "failed"} == unread
    why = next(item["error"] for item in capture["file"] if item["name"] == "log.txt")
    assert why == f"{host} cannot be reached: no route to node7"
    assert "clock_offset_ms" not in capture


def test_times_that_cannot_be_are_refused(tmp_path: Path) -> None:
    """A timeout shorter than the interval is an error of usage, before anything is asked."""
    with pytest.raises(UsageError, match="do not go together"):
        collect(deployment("http://127.0.0.1:9"), interval_s=5, timeout_s=5, out=tmp_path / "incident")


def test_an_interrupt_leaves_what_was_taken(tmp_path: Path) -> None:
    """Ctrl-C in the middle: the directory is readable, and says of each missing file that it was interrupted."""
    script = (
        "import sys\nfrom pathlib import Path\nfrom pdctl.collect.session import collect\n"
        "from pdctl.deployment import files\n"
        "collect(files.load(Path(sys.argv[1])), interval_s=1, timeout_s=60, out=Path(sys.argv[2]))\n"
    )
    out = tmp_path / "incident"
    with BadServer({"/metrics": whole(METRICS % 1)}) as server:
        files.save(deployment(server.url), tmp_path / "pd.toml")
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "pd.toml"), str(out)],
            cwd=Path(__file__).parents[4],
            stderr=subprocess.PIPE,
        )
        # /health hangs for its 4 s when the second scrape is there already.
        eventually((out / "prefill-0" / "metrics.txt").exists)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert b"KeyboardInterrupt" in err
    evidence = read_directory(out)
    assert evidence.problems == ()
    assert evidence.instances[0].metrics is not None
    assert evidence.instances[0].capture.failed["http.toml"] == "the collection was interrupted"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_costs_the_files_that_do_not_fit(small: Path) -> None:
    """What was written before is readable, and the summary says that the rest is not there."""
    big = whole(b"".join(b'sglang:num_running_reqs{rank="%d"} 1\n' % rank for rank in range(3000)))
    with BadServer({"/metrics": big, "/health": whole(b"")}, not_found) as server:
        summary = collect(deployment(server.url), interval_s=0.1, timeout_s=10, out=small / "incident")
    assert not summary.is_complete
    assert "No space left" in (summary.unwritten or "")
    assert "metrics.txt" in {item.file for item in summary.missing}
    evidence = read_directory(small / "incident")
    assert [instance.name for instance in evidence.instances] == ["prefill-0"]
    assert not list((small / "incident").rglob("*.part"))


def test_a_disk_without_room_for_anything_is_told(small: Path) -> None:
    """Nothing can be read of a folder that does not even say what is deployed."""
    (small / "filler").write_bytes(bytes(64 << 10))
    with (
        BadServer({"/health": whole(b"")}, not_found) as server,
        pytest.raises(PdctlError, match=r"topology.toml could not be written: No space left"),
    ):
        collect(deployment(server.url), interval_s=0.1, timeout_s=10, out=small / "incident")
