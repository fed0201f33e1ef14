"""One vLLM prefill and one decode with NIXL behind vllm-router, as real processes on the CPU: KV really travels."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.peers.pythons import python_of
from tests.peers.servers import Server, low_ports
from tests.waiting import eventually

MODEL = "smol"
START_S = 600.0
"""Both engines start at once: under a minute on two idle cores, many beside other work."""
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # One core each: more threads would only stand in each other's way.
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
    "UCX_TLS": "tcp,self,sm",
    "UCX_NET_DEVICES": "lo",
}
_ROLES = {"prefill": ("kv_producer", 0), "decode": ("kv_consumer", 1)}
"""Role -> vLLM's name of it, and the core that it computes on."""


@dataclass
class Vllm:
    """A running pair and its router."""

    prefill: Server
    decode: Server
    router: Server

    @property
    def servers(self) -> tuple[Server, ...]:
        return self.prefill, self.decode, self.router

    def ask(self, url: str | None = None, timeout_s: float = 30.0, **more: Any) -> httpx.Response:
        """Send one request, through the router unless to `url`; its prompt fills a KV block and is new each time."""
        prompt = f"{os.urandom(8).hex()} " + "The quick brown fox jumps over the lazy dog. " * 16
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 8, "temperature": 0, **more}
        return httpx.post(f"{url or self.router.url}/v1/completions", json=body, timeout=timeout_s, trust_env=False)

    def prefill_leg(self) -> dict[str, Any]:
        """Let prefill compute a prompt and return what decode needs to fetch it: `prompt`, `kv_transfer_params`."""
        prompt = f"{os.urandom(8).hex()} " + "The quick brown fox jumps over the lazy dog. " * 16
        wanted = {"do_remote_decode": True, "do_remote_prefill": False}
        answer = self.ask(self.prefill.url, prompt=prompt, max_tokens=1, kv_transfer_params=wanted)
        return {"prompt": prompt, "kv_transfer_params": answer.raise_for_status().json()["kv_transfer_params"]}

    def restore(self) -> None:
        """Let what is stopped go on, start what ended, and wait until a request passes."""
        for server in self.servers:
            if server.is_running:
                server.signal(signal.SIGCONT)
            else:
                server.start()
        eventually(lambda: self.prefill.is_well() and self.decode.is_well(), START_S)
        # vllm-router asks once a minute, and lets a worker in again after several good answers.
        eventually(self.passes, 300)

    def passes(self) -> bool:
        """Return whether one request through the router gets an answer."""
        with contextlib.suppress(httpx.HTTPError):
            return self.ask().status_code == 200
        return False


@contextlib.contextmanager
def vllm(model: Path, folder: Path) -> Iterator[Vllm]:
    """Start the three, wait until a request passes, and kill them at the end."""
    made = _made(model, folder)
    try:
        made.prefill.start()
        made.decode.start()
        eventually(lambda: made.prefill.is_well() and made.decode.is_well(), START_S)
        made.restore()
        yield made
    finally:
        for server in made.servers:
            server.kill()


def _made(model: Path, folder: Path) -> Vllm:
    # A router that hides its arguments is taken to serve on its lowest port, as with the usual 8000 and 29000.
    ports = sorted(low_ports(6))
    engines = {
        role: _engine(role, model, folder, port, side)
        for role, port, side in zip(_ROLES, ports[:2], ports[2:4], strict=True)
    }
    url, metrics = (f"http://127.0.0.1:{ports[4]}", str(ports[5]))
    argv = [str(python_of("vllm-router")), "-m", "vllm_router.launch_router", "--host", "127.0.0.1"]
    argv += ["--port", str(ports[4]), "--vllm-pd-disaggregation", "--prefill", engines["prefill"].url]
    argv += ["--decode", engines["decode"].url, "--policy", "round_robin"]
    argv += ["--prometheus-host", "127.0.0.1", "--prometheus-port", metrics, "--worker-startup-check-interval", "1"]
    return Vllm(engines["prefill"], engines["decode"], Server("router", url, argv, folder / "router.log"))


def _engine(role: str, model: Path, folder: Path, port: int, side_channel: int) -> Server:
    kv_role, core = _ROLES[role]
    config = f'{{"kv_connector":"NixlConnector","kv_role":"{kv_role}","kv_buffer_device":"cpu"}}'
    python = python_of("vllm")
    assert python is not None
    argv = [str(python), str(python.with_name("vllm")), "serve", str(model), "--served-model-name", MODEL]
    argv += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "1024", "--max-num-seqs", "8"]
    argv += ["--enforce-eager", "--dtype", "bfloat16", "--kv-transfer-config", config]
    environment = {
        **_ENVIRONMENT,
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(side_channel),
        "VLLM_CPU_OMP_THREADS_BIND": str(core),
    }
    return Server(role, f"http://127.0.0.1:{port}", argv, folder / f"{role}.log", environment)
