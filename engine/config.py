"""What one engine instance is told at its start."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Role(StrEnum):
    """What part of a request's life this instance takes."""

    PREFILL = "prefill"
    DECODE = "decode"
    UNIFIED = "unified"


class Schedule(StrEnum):
    """When a step is planned."""

    OVERLAP = "overlap"
    """While the one before it runs."""
    NORMAL = "normal"
    """When the result of the one before it is known."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything an instance needs to start; travels as JSON from the API process to the scheduler process.

    Durations are seconds, sizes are bytes unless the name says otherwise.
    """

    role: Role
    model: str
    """Path of a GGUF file or of a Hugging Face directory with safetensors."""
    served_name: str
    instance: str
    """A label for people. Identity is the incarnation, drawn anew at each process start."""
    incarnation: str
    """32 hex digits, random per process start."""

    host: str = "127.0.0.1"
    port: int
    bootstrap_port: int = 8998
    """Prefill only: HTTP registry that tells decode where the control channel is."""
    peers: tuple[str, ...] = ()
    """Decode only: `host:bootstrap_port` of every prefill it may dial. A `bootstrap_host` from a body must be one."""

    device: str = "cpu"
    """cpu | cuda: where a rank computes and keeps its KV; rank N takes GPU N. On CUDA unified only, see `arguments`."""
    dtype: str = "bfloat16"
    """bfloat16 | float32 | float64, of weights and KV."""
    cpu_step: str = "auto"
    """auto | off: on a CPU in bfloat16, compute by the C++ step where it can be compiled, else by torch."""
    quantization: str = "none"
    """none | gguf: the C++ step takes the GGUF's own 4- and 8-bit blocks as they are, rather than bfloat16."""
    page_size: int = 16
    """Tokens per KV page."""
    kv_tokens: int = 12288
    """What the page pool may hold; `pool_tokens` is what it holds."""
    max_context: int | None = None
    """Upper bound on prompt + generated tokens; never above the model's own. None: the model's own."""
    max_running: int = 64
    """Sequences in one step."""
    max_queued: int = 512
    """Requests admitted but not running; above it requests are refused with 503."""
    chunk_tokens: int = 256
    """Prompt tokens computed in one step; a multiple of page_size."""
    tp: int = 1
    """Tensor-parallel ranks, each a process; the KV heads are dealt among them."""
    threads: int = 1
    """Compute threads of each rank."""
    schedule: Schedule = Schedule.OVERLAP

    request_timeout_s: float = 600.0
    drain_timeout_s: float = 30.0
    pairing_timeout_s: float = 10.0
    silence_timeout_s: float = 5.0
    stuck_timeout_s: float = 30.0
    canary_every_s: float = 10.0
    """Decode: time between two canary READs from a prefill; 0: none, and `/health/transfer` knows nothing."""

    api_key: str | None = None
    admin_key: str | None = None
    control_key: str | None = None
    """CURVE secret key of the control channel in Z85, the same on every instance of a deployment."""
    checksums: bool = True
    prefix_cache: bool = True
    """Keep the KV of prompts that have ended, until their pages are needed."""
    insecure: bool = False
    flight_file: str | None = None
    """Where the flight recorder writes; None: in the instance's run folder, which goes with it."""
    recheck_prompts: bool = False
    """Decode: sum a request's prompt pages again at its end, and count those that changed; for chaos tests."""
    legacy_health: bool = False
    """`/health` answers 200 whatever is wrong, as the field's engines do; for rehearsals, with failpoints only."""
    enable_failpoints: bool = False
    """Faults can be switched on at run time (`POST /failpoints`); never in production."""
    log_level: str = "info"

    @property
    def pages(self) -> int:
        """Return how many KV pages sequences may have."""
        return self.kv_tokens // self.page_size

    @property
    def pool_tokens(self) -> int:
        """Return the capacity of the pool in tokens: `kv_tokens` in whole pages."""
        return self.pages * self.page_size
