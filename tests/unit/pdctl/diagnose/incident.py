"""Small incidents, written as the files they would be."""

# ruff: noqa: E501 - lines of logs and files stand as engines print them.
from __future__ import annotations

from pdctl.diagnose.diagnosis import diagnose
from pdctl.diagnose.report import Report
from pdctl.evidence.directory import evidence_of
from pdctl.evidence.model import Evidence

CAPTURED = "2026-06-19T14:30:00Z"
BEFORE = "2026-06-19T14:28:00Z"

_ENGINE = """[[instance]]
name = "{name}"
role = "{role}"
dialect = "{dialect}"
url = "http://192.0.2.{host}:{port}"
tp = {tp}
transfer = "{transfer}"
{more}
"""


def instance(
    name: str,
    role: str,
    dialect: str = "sglang",
    *,
    host: int = 1,
    port: int = 30000,
    tp: int = 1,
    transfer: str = "nixl",
    more: str = "",
) -> str:
    """Return the `[[instance]]` table of one engine or router."""
    return _ENGINE.format(
        name=name, role=role, dialect=dialect, host=host, port=port, tp=tp, transfer=transfer, more=more
    )


PAIR = instance("p", "prefill", host=1, more="bootstrap_port = 8998") + instance("d", "decode", host=2)


def evidence(topology: str, **files: str) -> Evidence:
    """Return evidence of files; `p__log_txt` is `p/log.txt`, `probe_toml` is `probe.toml`, a path is itself."""
    head = f"captured_at = {CAPTURED}\ncaptured_prev_at = {BEFORE}\n"
    named = {"topology.toml": (head + topology).encode()}
    for key, text in files.items():
        if "/" in key:
            named[key] = text.encode()
            continue
        folder, _, name = key.rpartition("__")
        stem, _, ending = name.rpartition("_")
        path = f"{stem.replace('_', '.')}.{ending}"
        named[f"{folder.replace('_', '-')}/{path}" if folder else path] = text.encode()
    return evidence_of(named)


def report(topology: str, **files: str) -> Report:
    """Return the report on evidence of files."""
    return diagnose(evidence(topology, **files))


def stack(pid: int, title: str, main: str, *threads: str) -> str:
    """Return one process of a dump. `main` is `inner < outer < ...`, functions with an optional `@file`."""
    lines = [f"Process {pid}: {title}", "Python v3.12", "", f'Thread {pid} (idle): "MainThread"']
    lines += [_frame(part) for part in main.split(" < ")]
    for index, function in enumerate(threads, 1):
        lines += [f'Thread {pid + index} (idle): "Thread-{index} ({function})"', _frame(function)]
    return "\n".join(lines) + "\n"


def _frame(part: str) -> str:
    function, _, file = part.partition("@")
    return f"    {function} ({file or 'sglang/srt/x.py'}:1)"


HEALTHY_GET = '[[get]]\npath = "/health"\nstatus = 200\ntook_ms = 5\n'
REFUSED_GET = '[[get]]\npath = "/health"\nerror = "refused"\n'
PROBE_TIMEOUT = (
    '[[probe]]\nat = 2026-06-19T14:29:30Z\nvia = "router"\ntook_ms = 20000\ntimeout_ms = 20000\nerror = "timeout"\n'
)
PROBE_PASSED = '[[probe]]\nat = 2026-06-19T14:29:30Z\nvia = "router"\ntook_ms = 300\nstatus = 200\noutput = "close"\n'


def stalled_pair() -> dict[str, str]:
    """Return metrics of a pair whose transfers stand still: many wait on decode, one on prefill."""
    prefill = (
        'sglang:num_prefill_inflight_queue_reqs{tp_rank="0"} 1\nsglang:num_prefill_bootstrap_queue_reqs{tp_rank="0"} 1\n'
        'sglang:realtime_tokens_total{mode="prefill_compute"} 500\nsglang:kv_transfer_latency_ms_count 90\n'
        "sglang:num_requests_total 90\nsglang:cuda_graph_passes_total 70\n"
    )
    decode = (
        'sglang:num_decode_transfer_queue_reqs{tp_rank="0"} 40\nsglang:num_running_reqs 0\nsglang:num_requests_total 90\n'
        'sglang:realtime_tokens_total{mode="decode"} 9000\nsglang:cuda_graph_passes_total 800\nsglang:token_usage 0.3\n'
        'sglang:http_requests_active{endpoint="/v1/completions"} 40\n'
    )
    return {
        "p__metrics_txt": prefill,
        "p__metrics_prev_txt": prefill,
        "d__metrics_txt": decode,
        "d__metrics_prev_txt": decode,
        "p__http_toml": HEALTHY_GET,
        "d__http_toml": HEALTHY_GET,
    }


def abort_burst(at: str = "2026-06-19 14:27:20") -> str:
    """Return a prefill log that ends in a burst of aborts."""
    batch = f"[{at} TP0] Prefill batch, #new-seq: 1, #running-req: 0, #queue-req: 0, #inflight-req: 1\n"
    line = (
        f"[{at} TP0] Prefill bootstrap failed for request rank=0 req.rid='r{{0}}' req.bootstrap_room={{0}} "
        "with exception KVTransferError(bootstrap_room={0}): Aborted by AbortReq.\n"
    )
    return batch + "".join(line.format(room) for room in range(101, 107))


def first(report: Report) -> str | None:
    """Return the code of the first firm cause."""
    return report.firm[0].code if report.firm else None


def status(report: Report, code: str) -> str:
    """Return the confidence of a cause, `ruled_out`, or `not named`."""
    if any(row.code == code for row in report.ruled_out):
        return "ruled_out"
    return next((cause.confidence for cause in report.causes if cause.code == code), "not named")
