"""The engine's command line: a table of flags over `EngineConfig`, checked values, one message an error."""

from __future__ import annotations

import argparse
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from engine.config import EngineConfig, Role, Schedule
from engine.errors import ConfigError
from engine.frontend.rendezvous import split_peer
from engine.transfer.control.control_key import ControlKey

DEFAULT_PORTS = {Role.PREFILL: 30000, Role.DECODE: 30002, Role.UNIFIED: 30000}
DEVICES = ("cpu", "cuda")
DTYPES = ("bfloat16", "float32", "float64")
CPU_STEPS = ("auto", "off")
QUANTIZATIONS = ("none", "gguf")
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Flag:
    """A number: its bounds (both allowed) and unit."""

    field: str
    kind: type
    low: float
    high: float
    unit: str
    help: str


NUMBERS = (
    Flag("port", int, 1, 65535, "PORT", "HTTP port (default: 30000, decode 30002)"),
    Flag("bootstrap_port", int, 1, 65535, "PORT", "prefill: port of the registry that decode asks"),
    Flag("page_size", int, 1, 1024, "TOKENS", "tokens of one KV page"),
    Flag("kv_tokens", int, 16, 1 << 31, "TOKENS", "capacity of the KV pool, of which whole pages are used"),
    Flag("max_context", int, 2, 1 << 31, "TOKENS", "bound on prompt + output (default: the model's own)"),
    Flag("max_running", int, 1, 65536, "SEQUENCES", "sequences in one step"),
    Flag("max_queued", int, 1, 1 << 20, "REQUESTS", "requests that may wait; more are refused with 503"),
    Flag("chunk_tokens", int, 1, 1 << 20, "TOKENS", "prompt tokens in one step, a multiple of the page size"),
    Flag("tp", int, 1, 64, "RANKS", "tensor-parallel ranks, each a process that holds a part of the model"),
    Flag("threads", int, 1, 1024, "THREADS", "compute threads of each rank"),
    Flag("request_timeout_s", float, 0.1, 1e6, "SECONDS", "deadline of a request"),
    Flag("drain_timeout_s", float, 0, 1e6, "SECONDS", "how long a draining instance lets requests finish"),
    Flag("pairing_timeout_s", float, 0.1, 1e6, "SECONDS", "how long a leg waits for its other leg"),
    Flag("silence_timeout_s", float, 0.1, 1e6, "SECONDS", "how long a peer may send no frame"),
    Flag("stuck_timeout_s", float, 0.1, 1e6, "SECONDS", "how long a peer's loop may stand still"),
    # What it found is stale after 30 s.
    Flag("canary_every_s", float, 0, 20, "SECONDS", "decode: time between canary READs from a prefill; 0: none"),
)


def parse_config(argv: list[str]) -> EngineConfig:
    """Return the configuration that `argv` asks for. Raises ConfigError; --help and bad usage exit (0, 2)."""
    given = vars(_parser().parse_args(argv))
    for flag in NUMBERS:
        _check_number(flag, given.get(flag.field))
    role = Role(given["role"])
    given.setdefault("port", DEFAULT_PORTS[role])
    given.setdefault("served_name", Path(given["model"]).name.removesuffix(".gguf"))
    given.setdefault("instance", f"{role}-{given['port']}")
    given["peers"] = _peers(given.pop("peers", []), role)
    for key in ("api_key", "admin_key", "control_key"):
        given[key] = _read_key(given.pop(f"{key}_file", None), f"--{key.replace('_', '-')}-file")
    config = EngineConfig(**given | {"role": role, "incarnation": secrets.token_hex(16)})
    _check_control_key(config)
    _check_together(config)
    return config


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m engine",
        description="One engine instance: HTTP API, scheduler, model.",
        epilog="example: python -m engine --role unified --model SmolLM2-135M-Instruct.Q4_1.gguf",
        # A flag that was not given is absent, so that the defaults stand in EngineConfig alone.
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--model", required=True, metavar="PATH", help="GGUF file, or Hugging Face directory with safetensors")
    add("--role", required=True, choices=[role.value for role in Role], help="part of a request's life")
    add("--served-name", metavar="NAME", help="model name that clients write (default: from the path)")
    add("--instance", metavar="NAME", help="label for people (default: ROLE-PORT)")
    add("--host", metavar="ADDRESS", help=f"address to bind (default: {_default('host')})")
    add(
        "--peers",
        action="append",
        metavar="HOST:PORT,...",
        help="decode: registries of the prefills it may dial",
    )
    add(
        "--schedule",
        type=Schedule,
        choices=list(Schedule),
        help=f"plan a step while the one before it runs, or after it (default: {_default('schedule')})",
    )
    add(
        "--device",
        choices=DEVICES,
        help=f"what computes; cuda: --role unified, each rank on a GPU of its own (default: {_default('device')})",
    )
    add("--dtype", choices=DTYPES, help=f"of weights and KV (default: {_default('dtype')})")
    add(
        "--cpu-step",
        choices=CPU_STEPS,
        help=f"bfloat16 on a CPU: auto compiles and uses the C++ step, off leaves it to torch "
        f"(default: {_default('cpu_step')})",
    )
    add(
        "--quantization",
        choices=QUANTIZATIONS,
        help=f"gguf: the C++ step computes with the file's own Q4_0, Q4_1 and Q8_0 blocks: less memory, faster, "
        f"less exact (default: {_default('quantization')})",
    )
    add("--log-level", choices=LOG_LEVELS, help=f"(default: {_default('log_level')})")
    add("--api-key-file", metavar="FILE", help="file with the key that generating requests need")
    add("--admin-key-file", metavar="FILE", help="file with the key for /rooms, /abort_request, /drain")
    add(
        "--control-key-file",
        metavar="FILE",
        help="file with the deployment's CURVE secret key: encrypts the control channel between prefill and decode",
    )
    add("--no-checksums", dest="checksums", action="store_false", help="do not verify transferred KV pages")
    add("--no-prefix-cache", dest="prefix_cache", action="store_false", help="do not keep the KV of ended prompts")
    add("--insecure", action="store_true", help="allow a --host off this machine without keys")
    add(
        "--flight-file",
        metavar="FILE",
        help="flight recorder (default: in the run folder, which goes with the process)",
    )
    add("--recheck-prompts", action="store_true", help="decode: verify prompt pages again when a request ends")
    add("--legacy-health", action="store_true", help="with --enable-failpoints: /health is 200 whatever is wrong")
    add("--enable-failpoints", action="store_true", help="allow POST /failpoints to cause faults; for rehearsals only")
    for flag in NUMBERS:
        default = _default(flag.field)
        text = flag.help if default is None else f"{flag.help} (default: {default})"
        add(_option(flag.field), dest=flag.field, type=flag.kind, metavar=flag.unit, help=text)
    return parser


def _option(field: str) -> str:
    return "--" + field.removesuffix("_s").replace("_", "-")


def _default(field: str) -> Any:
    value = next(info.default for info in msgspec.structs.fields(EngineConfig) if info.name == field)
    return value if isinstance(value, int | float | str) else None


def _check_number(flag: Flag, value: float | None) -> None:
    if value is not None and not flag.low <= value <= flag.high:
        raise ConfigError(
            f"{_option(flag.field)} {value}: must be from {flag.low:g} to {flag.high:g} {flag.unit.lower()}"
        )


def _peers(lists: list[str], role: Role) -> tuple[str, ...]:
    peers = tuple(peer.strip() for each in lists for peer in each.split(",") if peer.strip())
    for peer in peers:
        try:
            split_peer(peer)
        except ValueError as error:
            raise ConfigError(f"--peers: {error}") from error
    if role is Role.DECODE and not peers:
        raise ConfigError("--role decode needs --peers HOST:PORT: the registries (bootstrap ports) of its prefills")
    if role is not Role.DECODE and peers:
        raise ConfigError(f"--peers {','.join(peers)}: only a decode has peers, this is --role {role}")
    return peers


def _read_key(file: str | None, option: str) -> str | None:
    if file is None:
        return None
    try:
        key = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{option} {file}: cannot be read: {error}") from error
    if not key:
        raise ConfigError(f"{option} {file}: the file is empty")
    return key


def _check_control_key(config: EngineConfig) -> None:
    try:
        ControlKey.of(config.control_key)
    except ValueError as error:
        raise ConfigError(
            f"--control-key-file: {error}; make one with "
            "`python -c 'import zmq; print(zmq.curve_keypair()[1].decode())'`"
        ) from error


def _check_together(config: EngineConfig) -> None:
    if config.chunk_tokens % config.page_size:
        raise ConfigError(f"--chunk-tokens {config.chunk_tokens}: must be a multiple of --page-size {config.page_size}")
    if config.legacy_health and not config.enable_failpoints:
        raise ConfigError("--legacy-health hides faults, and so is for rehearsals: it needs --enable-failpoints")
    if config.kv_tokens < config.page_size:
        raise ConfigError(f"--kv-tokens {config.kv_tokens}: less than one page of {config.page_size}")
    if config.device != "cpu" and config.role is not Role.UNIFIED:
        raise ConfigError(
            f"--device {config.device}: only with --role unified; a {config.role} has its KV in host memory, where "
            "the processes that move it find it"
        )
    if config.role is Role.PREFILL and config.port == config.bootstrap_port:
        raise ConfigError(f"--port and --bootstrap-port are both {config.port}: they must differ")
