"""How each family is started: what its command line looks like, and what its flags tell."""

from __future__ import annotations

import msgspec


class CommandLine(msgspec.Struct, frozen=True, kw_only=True):
    """One way to start one family. Flags are tried in order; the first that is given counts."""

    dialect: str
    modules: tuple[str, ...] = ()
    """`python -m MODULE`."""
    programs: tuple[tuple[str, ...], ...] = ()
    """Name of an executable or script, and the words that must follow it."""
    is_router: bool = False
    role_flags: tuple[str, ...] = ()
    roles: dict[str, str] = {}
    """Value of a role flag -> role; a bare flag has the value ``. Without any flag: `default_role`."""
    default_role: str = ""
    """Empty: the command line does not tell."""
    port_flags: tuple[str, ...] = ("--port",)
    host_flags: tuple[str, ...] = ("--host",)
    default_ports: dict[str, int] = {}
    """Role (or `` for any) -> port."""
    bootstrap_flags: tuple[str, ...] = ()
    default_bootstrap: int | None = None
    model_flags: tuple[str, ...] = ()
    tp_flags: tuple[str, ...] = ()
    transfer_flags: tuple[str, ...] = ()
    default_transfer: str | None = None
    metrics_host_flag: str = ""
    metrics_port_flag: str = ""
    default_metrics_port: int | None = None
    source: str = ""


_MODES = {"prefill": "prefill", "decode": "decode", "null": "unified"}
_MODEL = ("--served-model-name", "--model-name", "--model-path", "--model")
_TP = ("--tp", "--tp-size", "--tensor-parallel-size", "-tp")

COMMAND_LINES: tuple[CommandLine, ...] = (
    CommandLine(
        dialect="pdctl",
        modules=("engine",),
        role_flags=("--role",),
        roles={"prefill": "prefill", "decode": "decode", "unified": "unified"},
        default_ports={"decode": 30002, "": 30000},
        bootstrap_flags=("--bootstrap-port",),
        default_bootstrap=8998,
        model_flags=("--served-name", "--model"),
        default_transfer="nixl",
        source="engine/arguments.py",
    ),
    CommandLine(
        dialect="sglang",
        modules=("sglang.launch_server",),
        programs=(("sglang", "serve"),),
        role_flags=("--disaggregation-mode",),
        roles=_MODES,
        default_role="unified",
        default_ports={"": 30000},
        bootstrap_flags=("--disaggregation-bootstrap-port",),
        default_bootstrap=8998,
        model_flags=_MODEL,
        tp_flags=_TP,
        transfer_flags=("--disaggregation-transfer-backend",),
        default_transfer="mooncake",
        source="sglang 0.5.23 server_args.py",
    ),
    CommandLine(
        dialect="vllm",
        modules=("vllm.entrypoints.openai.api_server", "vllm.entrypoints.cli.main"),
        programs=(("vllm", "serve"),),
        # The value is JSON; its kv_role decides. kv_both serves both ways and tells nothing.
        role_flags=("--kv-transfer-config",),
        roles={"kv_producer": "prefill", "kv_consumer": "decode"},
        default_ports={"": 8000},
        model_flags=_MODEL,
        tp_flags=_TP,
        source="vllm 0.33.0 cli_args.py, config/kv_transfer.py",
    ),
    CommandLine(
        dialect="dynamo",
        modules=("dynamo.frontend",),
        is_router=True,
        port_flags=("--http-port",),
        host_flags=("--http-host",),
        default_ports={"": 8000},
        source="ai-dynamo 1.6.1",
    ),
    CommandLine(
        dialect="dynamo",
        modules=("dynamo.sglang", "dynamo.vllm", "dynamo.trtllm", "dynamo.mocker"),
        role_flags=("--disaggregation-mode", "--is-prefill-worker", "--is-decode-worker"),
        roles={**_MODES, "agg": "unified", "prefill_and_decode": "unified"},
        # A worker's status server is set by DYN_SYSTEM_PORT, which is no flag.
        port_flags=(),
        model_flags=_MODEL,
        tp_flags=_TP,
        source="ai-dynamo 1.6.1",
    ),
    CommandLine(
        dialect="smg",
        modules=("smg", "smg.launch", "sglang_router.launch_router", "sglang_router"),
        programs=(("smg",), ("sglang-router",), ("smg-launch",), ("smg::router",), ("sglang::router",)),
        is_router=True,
        default_ports={"": 30000},
        metrics_host_flag="--prometheus-host",
        metrics_port_flag="--prometheus-port",
        default_metrics_port=29000,
        source="smg 1.13.0, sglang-router 0.3.2",
    ),
    CommandLine(
        dialect="vllm-router",
        modules=("vllm_router.launch_router", "vllm_router"),
        programs=(("vllm-router",), ("vllm::router",)),
        is_router=True,
        default_ports={"": 8000},
        metrics_host_flag="--prometheus-host",
        metrics_port_flag="--prometheus-port",
        default_metrics_port=29000,
        source="vllm-router 0.1.17",
    ),
    CommandLine(
        dialect="trtllm",
        programs=(("trtllm-serve",),),
        role_flags=("--server_role",),
        roles={"context": "prefill", "generation": "decode", "CONTEXT": "prefill", "GENERATION": "decode"},
        default_ports={"": 8000},
        tp_flags=("--tp_size",),
        source="tensorrt-llm 1.x serve command",
    ),
)
