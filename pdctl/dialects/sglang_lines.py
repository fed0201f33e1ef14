"""What SGLang workers log. Read in the releases 0.4.7.post1 to 0.5.23 and the threads that are named."""

# ruff: noqa: E501 - a wording stays on one line, so that what an engine prints can be searched for.
from __future__ import annotations

from pdctl.dialects.signals import Event, Pattern

_CONN = "disaggregation/common/conn.py"

_ROOM = r"(?:req|decode_req\.req)\.rid='(?P<rid>[^']*)' (?:req|decode_req\.req)\.bootstrap_room=(?P<room>\d+)"
_REASON = r".*?with exception (?:KVTransferError\(bootstrap_room=\d+\): )?(?P<reason>.*)"


def _forked(side: str) -> Pattern:
    """The same failure as forks of SGLang word it (TokenSpeed: one stage, no request id)."""
    regex = rf"{side.title()}(?: (?:bootstrap|transfer|handshake))? failed for bootstrap_room=(?P<room>\d+): (?:KVTransferError\([^)]*\): )?(?P<reason>.*)"
    return Pattern(
        Event.ROOM_FAILED,
        regex,
        "failed for bootstrap_room=",
        source="TokenSpeed prefill_executor.py, decode_executor.py",
    )


def _room_failed(start: str, side: str, stage: str, file: str) -> Pattern:
    regex = rf"{start} failed for request rank=\d+ (?P<{side}_{stage}>){_ROOM}{_REASON}"
    return Pattern(Event.ROOM_FAILED, regex, f"{start} failed for request", source=file)


PATTERNS = (
    _room_failed("Prefill bootstrap", "prefill", "bootstrap", "disaggregation/prefill.py"),
    _room_failed("Prefill transfer", "prefill", "transfer", "disaggregation/prefill.py"),
    _room_failed("Decode handshake", "decode", "handshake", "disaggregation/decode.py"),
    _room_failed("Decode transfer", "decode", "transfer", "disaggregation/decode.py"),
    _forked("prefill"),
    _forked("decode"),
    Pattern(
        Event.THREAD_DIED,
        r"prefill (?P<thread>bootstrap_thread) died on engine_rank=",
        "bootstrap_thread died",
        "0.5.21-",
        "nixl/conn.py",
    ),
    Pattern(
        Event.THREAD_DIED,
        r"(?:AssertionError: )?First message should be (?P<thread>).*?MsgGuard",
        "First message should be",
        "0.4.7-",
        "nixl/conn.py bootstrap_thread",
    ),
    Pattern(
        Event.THREAD_DIED,
        r"(?:RuntimeError: )?(?P<thread>Transfer) thread failed because of .*is dead",
        "Transfer thread failed because",
        source="mooncake/conn.py",
    ),
    Pattern(Event.SESSION_FAILED, r"Session (?P<session>\S+) failed\.", "Session ", source="mooncake/conn.py"),
    Pattern(
        Event.SESSION_RECOVERED,
        r"Session (?P<session>\S+) recovered",
        "recovered",
        "0.5.13-",
        "mooncake/conn.py",
    ),
    Pattern(
        Event.PEER_LOST,
        r"(?:Lost|Losing) connection with prefill instance \(bootstrap_addr: (?P<peer>[^)]+)\)",
        "connection with prefill instance",
        source=_CONN,
    ),
    Pattern(
        Event.PEER_LOST,
        r"Attempting to reconnect to (?P<peer>\S+?)\.\.\.",
        "Attempting to reconnect",
        source=_CONN,
    ),
    Pattern(Event.STALE_METADATA, r"NIXL invalidated remote agent", "NIXL invalidated", "0.5.22-", "nixl/conn.py"),
    Pattern(Event.STALE_METADATA, r"Failed to reload NIXL metadata", "reload NIXL", "0.5.22-", "nixl/conn.py"),
    Pattern(
        Event.STALE_METADATA,
        r"Peer \S+ was already registered, ignoring",
        "was already registered",
        "0.5.1-",
        "nixl/conn.py",
    ),
    Pattern(
        Event.MISMATCH,
        r"(?:\w+Error: )?(?P<field>Page size|KV cache dtype|KV layout) mismatch:",
        "mismatch:",
        source=_CONN,
        is_anchored=False,
    ),
    Pattern(
        Event.MISMATCH,
        r"(?:\w+Error: )?.{0,60}does NOT support PD different (?P<field>TP) sizes",
        "does NOT support PD different",
        "0.5.6-",
        "nixl/conn.py",
    ),
    Pattern(
        Event.MISMATCH,
        r"(?:\w+Error: )?.{0,80}[Dd]ifferent (?P<field>TP) sizes? .{0,60}not (?:yet )?supported",
        "ifferent TP size",
        "-0.5.2",
        _CONN,
    ),
    Pattern(
        Event.MISMATCH,
        r"Decode \S+ registered \d+ (?P<field>metadata buffers) but this prefill has",
        "but this prefill has",
        "0.5.23-",
        _CONN,
        is_anchored=False,
    ),
    Pattern(
        Event.MISMATCH,
        r"decode_listener_thread: unexpected (?P<field>message tag)",
        "unexpected message tag",
        "0.5.19-",
        "nixl/conn.py",
    ),
    Pattern(
        Event.REGISTRY_UNREACHABLE,
        r"Error fetching prefill \w+ info from bootstrap: .*?(?:host='(?P<host>[^']+)', port=(?P<port>\d+))?.{0,80}",
        "Error fetching prefill",
        source=_CONN,
    ),
    Pattern(
        Event.REGISTRY_UNREACHABLE,
        r"Could not fetch prefill parallel info from (?:bootstrap_addr: )?(?:http://)?(?P<host>[\d.]+|[\w.-]+):(?P<port>\d+)",
        "Could not fetch prefill",
        source=_CONN,
    ),
    Pattern(
        Event.REGISTRY_UNREACHABLE,
        r"Failed to get prefill server info: (?P<code>\d+)",
        "Failed to get prefill server info",
        source=_CONN,
    ),
    Pattern(
        Event.REGISTRATION_FAILED,
        r"Prefill instance failed to register to bootstrap server",
        "failed to register",
        source=_CONN,
    ),
    Pattern(
        Event.CORRUPTION,
        r"KV checksum mismatch",
        "KV checksum mismatch",
        "0.5.21-",
        "disaggregation/decode.py",
    ),
    Pattern(
        Event.CORRUPTION,
        r"Context corruption detected",
        "Context corruption",
        "0.5.9-",
        "disaggregation/decode.py",
    ),
    Pattern(
        Event.CORRUPTION,
        r"Metadata unexpectedly not ready",
        "Metadata unexpectedly",
        "0.5.13-",
        "disaggregation/decode.py",
    ),
    Pattern(
        Event.CORRUPTION,
        r"Requested address 0x[0-9a-f]+ to 0x[0-9a-f]+ not found",
        "Requested address",
        source="mooncake multi_transport.cpp",
    ),
    Pattern(
        Event.RETRACTED,
        r"(?:KV cache pool is full\. )?Retract requests",
        "etract requests",
        source="managers/scheduler.py",
    ),
    Pattern(Event.RETRACTED, r"KV cache pool is full", "KV cache pool is full", source="managers/scheduler.py"),
    Pattern(
        Event.POOL_LEAK,
        r"(?:\w+Error: )?(?:pool|token_to_kv_pool_allocator|req_to_token_pool|KV cache|Memory).{0,40}memory leak detected",
        "memory leak detected",
        source="managers/scheduler_runtime_checker_mixin.py",
    ),
    Pattern(
        Event.WATCHDOG,
        r"(?:\w+ )?[Ww]atchdog timeout \(self\.watchdog_timeout=(?P<seconds>\d+)",
        "atchdog timeout",
        source="utils/watchdog.py",
    ),
    Pattern(
        Event.HEALTH_FAILED,
        r"Health check failed\. Server couldn't get a response from detokenizer",
        "Health check failed",
        source="entrypoints/http_server.py",
    ),
    Pattern(
        Event.CHILD_DIED,
        r"Subprocess \S+ \(pid=\d+\) crashed with exit code (?P<code>-?\d+)",
        "crashed with exit code",
        "0.5.12-",
        "utils/watchdog.py",
    ),
    Pattern(Event.CHILD_DIED, r"(?:Received sigquit from a child|SIGQUIT received)", "", source="engine.py"),
    Pattern(
        Event.ENGINE_DIED,
        r"Scheduler hit an exception",
        "Scheduler hit an exception",
        source="managers/scheduler.py",
    ),
    Pattern(
        Event.TOO_LONG,
        r"Input length \((?P<tokens>\d+) tokens\) exceeds the maximum allowed length \((?P<limit>\d+)",
        "exceeds the maximum allowed",
        source="managers/utils.py",
    ),
    Pattern(
        Event.WAITING_TIMEOUT,
        r"Request (?:waiting|running) timeout reached\. rid=(?P<rid>\S+)",
        "timeout reached. rid=",
        source="threads; releases have the sentence alone",
    ),
    Pattern(
        Event.WAITING_TIMEOUT,
        r"Request (?:waiting|running) timeout reached\.",
        "timeout reached.",
        "0.5.9-",
        "managers/scheduler.py",
    ),
    Pattern(
        Event.TIME_STATS,
        r"ReqTimeStats\(rid=(?P<rid>\w+).*?bootstrap_room=(?P<room>\d+).*?input_len=(?P<tokens>\d+),.*?type=(?P<side>\w+)",
        "ReqTimeStats(",
        "0.5.12-",
        "metrics/collector.py",
    ),
    Pattern(Event.STARTED, r"server_args=ServerArgs\(", "server_args=", source="entrypoints/engine.py"),
    Pattern(
        Event.STARTED,
        r"Init torch distributed begin",
        "Init torch distributed begin",
        "-0.5.20",
        "model_runner.py",
    ),
    Pattern(Event.LOADING, r"Load weight begin", "Load weight begin", source="model_runner.py"),
    Pattern(Event.LOADED, r"Load weight end", "Load weight end", source="model_runner.py"),
    Pattern(Event.COMPILING, r"Capture .{0,30}(?:cuda|CUDA) graph begin", "Capture", source="model_runner.py"),
    Pattern(Event.COMPILING, r"Capturing batches", "Capturing batches", source="cuda_graph_runner.py"),
    Pattern(
        Event.COMPILING, r"(?:Entering DeepGEMM JIT|DeepGEMM (?:JIT|warmup))", "DeepGEMM", source="deep_gemm_wrapper"
    ),
    Pattern(Event.COMPILING, r"Start of (?:pd disaggregation|\w+) warmup", "warmup", source="http_server.py"),
    Pattern(Event.READY, r"The server is fired up and ready to roll", "fired up", source="http_server.py"),
    Pattern(
        Event.KV_POOL_SIZE,
        r"max_total_num_tokens=(?P<tokens>\d+)",
        "max_total_num_tokens=",
        source="managers/scheduler.py",
    ),
    Pattern(
        Event.CLIENT_GONE,
        r"(?:\w+Error: )?Request is disconnected from the client side",
        "disconnected from the client",
        source="managers/tokenizer_manager.py",
    ),
)
