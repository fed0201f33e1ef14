"""What the layers below every family say: Python, uvicorn, torch, NIXL, UCX, Mooncake, kernel, kubelet."""

# ruff: noqa: E501 - a wording stays on one line, so that what an engine prints can be searched for.
from __future__ import annotations

from pdctl.dialects.signals import Batch, Event, Pattern

_NIXL_CODES = "NIXL_ERR_(?:REMOTE_DISCONNECT|BACKEND|NOT_FOUND|CANCELED|UNKNOWN)"

PATTERNS = (
    # Python
    Pattern(
        Event.THREAD_DIED,
        r"Exception in thread .*?\((?P<thread>[\w<>. ]+)\):",
        "Exception in thread",
        source="threading.excepthook",
    ),
    Pattern(
        Event.THREAD_DIED,
        r"Exception in thread (?P<thread>[\w.-]+):",
        "Exception in thread",
        source="threading.excepthook",
    ),
    Pattern(
        Event.FATAL_SIGNAL,
        r"Fatal Python error: (?P<signal>Segmentation fault|Aborted|Bus error|Illegal instruction)",
        "Fatal Python error",
        source="faulthandler",
    ),
    Pattern(Event.FATAL_SIGNAL, r".{0,60}Caught signal (?P<signal>\d+) \(", "Caught signal", source="ucs debug"),
    Pattern(Event.FATAL_SIGNAL, r"!+ ?Segfault encountered", "Segfault encountered", source="torch signal handler"),
    Pattern(Event.FATAL_SIGNAL, r".{0,80}(?:segfault at|general protection fault|traps:)", "", source="kernel"),
    Pattern(
        Event.NATIVE_FRAME,
        r"(?: *File \".*\", line \d+ in | *#?\d+ +(?:0x[0-9a-f]+ )?.{0,80}?)(?P<function>\w*add_remote_\w+|nixl\w+|ucp_\w+|uct_\w+|ucs_\w+|mooncake\w*|postXferReq)\b",
        "",
        source="faulthandler, UCX, gdb",
    ),
    # uvicorn
    Pattern(
        Event.ACCESS,
        r"(?:INFO: +)?\S+:\d+ - \"(?P<method>[A-Z]+) (?P<path>\S+) HTTP/[\d.]+\" (?P<status>\d{3})",
        "HTTP/",
        source="uvicorn access log",
    ),
    Pattern(
        Event.CLIENT_GONE,
        r".{0,120}?(?:client .{0,30}(?:broken pipe|reset|disconnected|closed)|[Bb]roken pipe while (?:writing|streaming))",
        "",
        source="HTTP servers",
    ),
    # NIXL, UCX
    Pattern(Event.TRANSPORT_ERROR, rf".{{0,200}}?(?P<code>{_NIXL_CODES})", "NIXL_ERR_", source="nixl nixl_types.h"),
    Pattern(
        Event.TRANSPORT_ERROR,
        r"(?:NIXL transport error for room|NIXL transfer encountered ERR)",
        "NIXL trans",
        "sglang 0.5.12-",
        "nixl/conn.py",
    ),
    Pattern(
        Event.TRANSPORT_ERROR,
        r"UCX (?:ERROR|WARN) (?P<code>.*(?:Remote I/O error|[Ee]ndpoint timeout|Connection reset|not connected|transport retry|FAILED|timed? ?out).*)",
        "UCX ",
        source="ucx",
    ),
    Pattern(
        Event.TRANSPORT_ERROR,
        r".{0,80}?(?:transport retry counter exceeded|Rail paused|local protection error|Failed to modify QP|Work Request Flushed|ERR_ENDPOINT|kNETWORK_ERROR)",
        "",
        source="mooncake, verbs",
    ),
    Pattern(
        Event.TRANSPORT_TIMEOUT,
        r".{0,60}?(?:Sync batch data transfer timeout|[Tt]ransfer (?:timed out|timeout) after|slice timeout|Mooncake transfer engine returned -1)",
        "",
        source="transfer_engine_py.cpp",
    ),
    Pattern(
        Event.SESSION_REFUSED,
        r"SocketHandShakePlugin: connect\(\) ?(?P<session>\S+?): Connection refused",
        "SocketHandShakePlugin",
        source="transfer_metadata_plugin.cpp",
    ),
    Pattern(
        Event.TRANSPORT_ERROR,
        r"Cannot make connection for endpoint: (?P<code>\S+)",
        "Cannot make connection",
        source="mooncake",
    ),
    Pattern(
        Event.TRANSPORT_ERROR,
        r"Failed to exchange handshake description",
        "exchange handshake",
        source="mooncake",
    ),
    Pattern(
        Event.LISTEN_ADDRESS,
        r".{0,60}?[Tt]ransfer [Ee]ngine .{0,60}?(?:listening on|RPC using|local_hostname|server name)[ :=]+(?P<host>[\d.]+)",
        "ransfer",
        source="transfer_engine_impl.cpp",
    ),
    # torch
    Pattern(
        Event.COLLECTIVE_TIMEOUT,
        r".{0,160}?Watchdog caught collective operation timeout",
        "caught collective operation timeout",
        source="ProcessGroupNCCL.cpp",
    ),
    Pattern(
        Event.COLLECTIVE_TIMEOUT,
        r".{0,160}?ProcessGroupNCCL's watchdog got stuck",
        "watchdog got stuck",
        source="ProcessGroupNCCL.cpp",
    ),
    Pattern(
        Event.COLLECTIVE_TIMEOUT,
        r".{0,200}?Timed out waiting \d+ms for (?:recv|send) operation",
        "ms for ",
        source="gloo",
    ),
    Pattern(
        Event.COLLECTIVE_MISMATCH,
        r".{0,200}?op\.preamble\.length <= op\.nbytes",
        "op.preamble.length",
        source="gloo transport/tcp/pair.cc",
    ),
    Pattern(
        Event.COLLECTIVE_MISMATCH,
        r".{0,200}?Detected mismatch between collectives on ranks",
        "mismatch between collectives",
        source="torch ProcessGroupWrapper",
    ),
    Pattern(
        Event.GPU_OOM,
        r"(?:torch\.(?:cuda\.)?OutOfMemoryError|.{0,80}?CUDA out of memory|.{0,80}?CUDA error: out of memory)",
        "",
        source="torch",
    ),
    Pattern(
        Event.GPU_ERROR,
        r".{0,160}?CUDA error: (?P<error>(?!out of memory)[\w .-]+)",
        "CUDA error",
        source="torch",
    ),
    Pattern(
        Event.GPU_ERROR,
        r".{0,160}?(?P<error>CUDA_ERROR_(?!OUT_OF_MEMORY)\w+|uncorrectable ECC|CUDNN_STATUS_EXECUTION_FAILED)",
        "",
        source="cuda",
    ),
    # kernel
    Pattern(Event.XID, r".{0,40}?NVRM: Xid \((?P<device>[^)]*)\): (?P<xid>\d+)", "Xid", source="nvidia driver"),
    Pattern(
        Event.KERNEL_OOM,
        r".{0,60}?(?:Out of memory: Killed process|oom-kill:|Memory cgroup out of memory|oom_reaper: reaped|invoked oom-killer)",
        "",
        source="kernel",
    ),
    Pattern(Event.KERNEL_OOM, r".{0,60}?(?:OOMKilled|OOMKilling)", "OOMKill", source="kubelet"),
    # kubelet and process managers
    Pattern(Event.LIVENESS_FAILED, r".{0,60}?(?:Liveness|Startup) probe failed", "probe failed", source="kubelet"),
    Pattern(
        Event.LIVENESS_KILLED,
        r".{0,60}?[Cc]ontainer \S+ failed (?:liveness|startup) probe, will be restarted",
        "will be restarted",
        source="kubelet",
    ),
    Pattern(
        Event.BACK_OFF,
        r".{0,60}?Back-off restarting failed container",
        "Back-off restarting",
        source="kubelet",
    ),
    Pattern(Event.STARTED, r".{0,60}?Started container", "Started container", source="kubelet"),
    Pattern(
        Event.TERMINATED,
        r".{0,40}?(?:[Rr]eceived (?:signal )?SIGTERM|SIGTERM received|caught SIGTERM|got SIGTERM)",
        "SIGTERM",
        source="process managers",
    ),
    Pattern(Event.TERMINATED, r".{0,40}?[Rr]eceived signal 15\b", "signal 15", source="process managers"),
    # start-up lines many servers share
    Pattern(
        Event.LOADING,
        r"Loading safetensors checkpoint shards",
        "Loading safetensors",
        source="safetensors loaders",
    ),
    Pattern(
        Event.COMPILING,
        r"(?:Compiling kernel|JIT[- ]compiling|Entering DeepGEMM|Autotuning|ninja: |Building extension module)",
        "",
        source="JIT back ends",
    ),
    Pattern(
        Event.READY,
        r"(?:INFO: +)?Application startup complete",
        "Application startup complete",
        source="uvicorn",
    ),
)

BATCHES = (
    Batch(
        r"(?:prefill|decode|prompt|eval)\b.{0,60}?[\d.]+ (?:tok|tokens)/s",
        "/s",
        {},
        is_pairs=False,
        source="servers that print their speed",
    ),
)

ECHO = r"(?:Received? request|Receive generation request|Receive: obj=|Finish: obj=|Request body|prompt[=:]|text[=:]|input_text)"
"""Lines that may quote a client's words; nothing in them is an event."""

QUOTED = r"\b(?:prompt|text|content|messages|input|user_message)['\"]?\s*[=:]\s*(?:['\"\[]|b')"
"""Where a client's words begin inside a line of the engine."""
