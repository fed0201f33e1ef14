"""Samples as a sampler takes them, with chosen numbers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.watch.sampler import Sample

START = datetime(2026, 6, 19, 14, 30, tzinfo=UTC)
PREFILL = Instance(name="p", role=Role.PREFILL, dialect="pdctl", url="http://192.0.2.1:1", bootstrap_port=8998)
DECODE = Instance(name="d", role=Role.DECODE, dialect="pdctl", url="http://192.0.2.2:1")
ROUTER = Instance(name="r", role=Role.ROUTER, dialect="smg", url="http://192.0.2.3:1")
DEPLOYMENT = Deployment(name="lab", model="m", instances=(PREFILL, DECODE, ROUTER))


def metrics(*, decoding: int = 0, age_s: float = 0.0, tokens: int = 0, kv_bytes: int = 0, done: int = 0) -> bytes:
    """Return a scrape of our engine."""
    return f"""pdengine_queue_length{{queue="decoding"}} {decoding}
pdengine_queue_length{{queue="waiting"}} 0
pdengine_queue_oldest_age_seconds{{queue="decoding"}} {age_s}
pdengine_http_generations{{stream="true"}} {decoding}
pdengine_generated_tokens_total {tokens}
pdengine_steps_total {tokens}
pdengine_transfer_bytes_total{{peer="x"}} {kv_bytes}
pdengine_requests_total{{result="stop"}} {done}
""".encode()


WELL = b'[[get]]\npath = "/health"\nstatus = 200\ntook_ms = 2\n'
SILENT = b'[[get]]\npath = "/health"\ntook_ms = 2000\nerror = "timeout"\n'
STOPPED = b'[[process]]\npid = 7\nstate = "T"\n'


def sample(after_s: float, step_s: float = 0.0, **files: bytes) -> Sample:
    """Return a sample; `d__metrics` is `d/metrics.prev.txt`, `d__http` and `d__process` are TOML files.

    `step_s`: by how much the wall clock was set meanwhile.
    """
    names = {"metrics": "metrics.prev.txt", "http": "http.prev.toml", "process": "process.toml"}
    named = {}
    for key, content in files.items():
        folder, _, name = key.partition("__")
        named[f"{folder}/{names[name]}"] = content
    at = START + timedelta(seconds=after_s + step_s)
    return Sample(at=at, clock_s=5000.0 + after_s, files=named, took_s=0.1, requests=3)
