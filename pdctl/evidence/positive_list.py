"""What structured data may say in a shared archive: keys that are listed keep their values, all others lose them."""

from __future__ import annotations

import re

import msgspec

from pdctl.dialects import signal_catalogue
from pdctl.evidence.records import Capture, Get, Gpu, Probe, Process, SourceFacts

_RECORDS = (Capture, Get, Gpu, Probe, Process, SourceFacts)
_TOPOLOGY = (
    "schema captured_at captured_prev_at instance name role dialect url host manager unit hosts tp dp pp "
    "ep nodes transfer bootstrap_port metrics_url model version pair prefill decode"
)
_FILES = (
    "file process get gpu probe at prev_at took_ms status error mode pause_ms truncated attached "
    "covers_since timeout_ms log_utc_offset clock_offset_ms output_ok thread_states cgroup_oom_kills "
    "libraries package_path newer_files newer_count newest_at date active_state result "
    "need_daemon_reload invocation_id manager unit socket local remote local_address remote_address "
    "local_port remote_port listening ttft_ms kv_bytes cached_tokens exited_at ended_at memory_used_mb "
    "memory_total_mb frames filename short_filename line lib thread_id thread_name active owns_gil pid "
    "os_thread_id process_info command_line locals_absent interval_s directory bytes detail outcome"
)
_LEDGER = (
    "recovery step by instance summary after before phases process health targets command verdict cause "
    "fingerprint forced running waiting oldest_s run took_s pid"
)
_ENGINE = (
    "ok problems incarnation loop_age_s threads refused_peers reason phase state rooms now room peer "
    "peer_incarnation bootstrap_room request_id rid prompt_tokens output_tokens kv_bytes chunks_read "
    "checksum checksums transfer_s received paired computed offered landed first_token last_token closed failed "
    "queues oldest_age_s total free cached held reading fencing pinned balanced served_model_name "
    "max_model_len object data id created owned_by root page_size dtype layers kv_heads head_dim layout "
    "protocol contract chunk_tokens disaggregation_mode disaggregation_bootstrap_port tp_size dp_size "
    "pp_size max_running max_queued kv_tokens threads_count ranks rank loop_tick code param type message "
    "error workers is_healthy worker_type connection_mode load priority cost healthy bootstrap_host "
    "stats count prefill_urls transfer endpoints instances kv_tokens_used kv_tokens_total role_name "
    "metrics values metric query"
)
_QUEUES = re.compile(
    # Load reports have hundreds of names, all of one make: something that is counted, of something that queues.
    r"(?:num|total|max|min|avg|cur|token|kv|gen|cache|gpu|memory|queue|queues|waiting|running|prefill|decode|bootstrap|"
    r"inflight|prealloc|transfer|retracted|grammar|paused|room|page|pages|prompt|ending|aggregate|disaggregation|lora|"
    r"speculative|hit|throughput|utilization|accept|timestamp|dp|rank|load|loads|req|reqs|requests|active|reported|age)"
    r"(?:_(?:\w+))?|\w+_(?:reqs?|requests|tokens|usage|bytes|seconds|gb|mb|count|rate|ratio|size|rank|queue|age_s|ms)",
)
CONTENT = re.compile(
    r"(?:prompt|text|messages?_content|content|inputs?|input_text|query_text|question|completion|output_text|answer|"
    r"generated_text|response_text|delta|reasoning(?:_content)?|arguments|system|user_input|prompts|completions|"
    r"(?:input|output|prompt|token|prompt_token|output_token|completion_token|stop_token|cached_token)_?ids|input_embeds|logprobs?)",
    re.I,
)
"""Keys under which clients' words or tokens stand. Their length is kept, nothing else."""
ENVIRONMENT = re.compile(
    r"(?:NCCL|UCX|NIXL|SGLANG|SGL|VLLM|DYN|MOONCAKE|MC|CUDA|OMP|TORCH|TRTLLM|PDENGINE|MLX5|GLOO)_\w+"
)
"""Variables that are switches of engines and of the layers below."""
STATES = ("ready", "notready")
"""Words that stay under any key: health bodies list their parts by names that somebody gave (Dynamo 1.6)."""
FREE_TABLES = ("fixes", "libraries", "thread_states", "status_counts")
"""Tables whose keys are names that we, not clients, gave."""
NAMES = {
    **dict.fromkeys(("model", "model_id", "model_name", "model_path", "model_tag", "served_model_name"), "model"),
    **dict.fromkeys(("request_id", "rid"), "request"),
}
"""Keys whose values are names that somebody gave, and the kind of their pseudonyms."""
ENDPOINTS = ("local", "remote")
"""Keys of a socket whose values are an address and a port."""
_LABELS = (
    "le quantile queue queues state result role kind direction reason thread path status status_code "
    "method code owner event stage phase finish_reason finished_reason engine_type tp_rank dp_rank "
    "pp_rank ep_rank moe_ep_rank rank is_cuda_graph error_type error_code leg worker_type route endpoint "
    "policy scope cache_source source category type mode disaggregation_mode engine priority device gpu "
    "version outcome level router_type backend_type connection_mode streaming implementation "
    "dynamo_component dynamo_endpoint operation request_type metrics_type"
)
LABELS = frozenset(_LABELS.split())
"""Labels of metrics whose values are words of the engine."""

_KEYS = frozenset(f"{_TOPOLOGY} {_FILES} {_LEDGER} {_ENGINE}".split())
_FIELDS = frozenset(field.name for record in _RECORDS for field in msgspec.structs.fields(record))
_LOADS = frozenset(part for name in signal_catalogue.LOADS for part in name.split("."))


def is_own_word(word: str) -> bool:
    """Return whether a word is a key that we or the engines gave; as a name of somebody's it would hit these too."""
    return word in _KEYS or word in _FIELDS or word in _LOADS or word in LABELS


def is_listed(key: str) -> bool:
    """Return whether a key of structured data keeps its value."""
    return is_own_word(key) or _QUEUES.fullmatch(key) is not None
