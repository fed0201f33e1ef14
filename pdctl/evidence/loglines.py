"""Log bytes of any engine family -> lines with time, rank and bare message."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from pdctl.evidence.records import LogLine

MAX_LINE = 4_000
MAX_BYTES = 16 * 1024 * 1024
"""Of a longer log the end is read: what happened last explains the present."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

# SGLang: `[2026-06-19 11:17:31 DP0 TP0] message`
_SGLANG = re.compile(r"\[(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d+))?((?: [A-Z_]+\d+)*)\] ?(.*)", re.S)
_INNER = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR) [\w./-]+\.py:\d+: ")
# vLLM: `(Worker_TP0 pid=411) ERROR 08-11 16:54:19 [nixl_connector.py:2206] message`
_PROCESS = re.compile(r"\((\w+)(?: pid=\d+)?\) ")
_VLLM = re.compile(
    r"(?:TRACE|DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,]\d+)? ?"
    r"(?:\[[\w./-]+:\d+\] ?)?(.*)",
    re.S,
)
# Rust tracing, Go and Kubernetes: `2026-08-28T01:13:33.03Z  INFO module: message`
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|[+-]\d\d:?\d\d)?[\s-]*"
    r"(?:\[?(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|LEVEL\(-?\d+\))\]?[\s:]+)?(.*)",
    re.S,
)
# TensorRT-LLM: `[05/07/2026-13:02:03] [TRT-LLM] [RANK 6] [W] message`
_TRTLLM = re.compile(
    r"\[(\d\d)/(\d\d)/(\d{4})-(\d\d):(\d\d):(\d\d)\] \[TRT-LLM\](?: \[RANK (\d+)\])? \[\w\] ?(.*)", re.S
)
# glog (Mooncake, NIXL): `E0729 22:05:57.196910  2210 file.cpp:611] message`; c10d puts a bracket before it
_GLOG = re.compile(r"\[?[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.\d+\s+(?:\d+ )?[\w./-]+:\d+\] ?(.*)", re.S)
# UCX: `[1789070504.617878] [host:pid:0]  file.c:419 UCX  ERROR message`
_UCX = re.compile(r"\[(\d{10})\.\d+\] \[[^\]]*\]\s+\S+\s+(UCX\s+\w+\s+.*)", re.S)
# Kernel: `[Wed Jul  1 03:11:27 2026] NVRM: ...` and `Jun 19 14:31:05 host kernel: ...`
_DMESG = re.compile(r"\[\w{3} ([A-Z][a-z]{2}) +(\d+) (\d\d):(\d\d):(\d\d) (\d{4})\] (.*)", re.S)
_SYSLOG = re.compile(r"([A-Z][a-z]{2}) +(\d+) (\d\d):(\d\d):(\d\d) \S+ (.*)", re.S)
# Servers that print no date: `09:55:00 server: ...`
_CLOCK = re.compile(r"\[?(\d\d):(\d\d):(\d\d)(?:[.,]\d+)?\]?\s+(.*)", re.S)
# zap: `{"level": "info", "ts": "2026-08-17T07:10:02Z", "msg": "Starting EPP", ...}`
_JSON_TIME = re.compile(r'"(?:ts|time|timestamp)": ?"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)')
_JSON_MESSAGE = re.compile(r'"(?:msg|message)": ?"((?:[^"\\]|\\.)*)"')
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_RUST_SPAN = re.compile(r"(?:[\w-]+\{[^}]*\}:\s*)+")
_RUST_NOISE = re.compile(r"(?:[a-z]\w*(?:(?:::|\.)\w+)+:\s*)?(?:/?(?:[\w.-]+/)+[\w.-]+:\d+:?\s*)?")

_Parsed = tuple[datetime | None, str, str]
"""Time (None: keep the last one), rank, message."""


def parse_log(data: bytes, file: str, reference: datetime, offset_min: int = 0) -> tuple[tuple[LogLine, ...], bool]:
    """Return the lines and whether the beginning was left out.

    `reference` is the time of the capture: it completes formats that print no year or no date. `offset_min`, the
    zone of the printed times, is subtracted.
    """
    is_cut = len(data) > MAX_BYTES
    first = 0
    if is_cut:
        start = data.find(b"\n", len(data) - MAX_BYTES) + 1
        first = data.count(b"\n", 0, start)
        data = data[start:]
    shift = timedelta(minutes=offset_min)
    file_rank = _rank_of_file(file)
    lines: list[LogLine] = []
    at: datetime | None = None
    for index, raw in enumerate(data.split(b"\n"), first + 1):
        if not raw.strip():
            continue
        text = _clean(raw)
        stamp, rank, message = _parse(text, reference)
        if stamp is not None:
            at = stamp - shift
        lines.append(LogLine(index, at, rank or file_rank, message, file))
    return tuple(lines), is_cut


def _clean(raw: bytes) -> str:
    return _CONTROL.sub("", without_colours(raw[: MAX_LINE * 2].decode("utf-8", "replace")))[:MAX_LINE]


def without_colours(text: str) -> str:
    """Return a text without terminal codes; routers print them into files too."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def _rank_of_file(file: str) -> str:
    parts = file.rpartition("/")[2].split(".")
    is_rank = len(parts) == 3 and re.fullmatch(r"(?:[A-Z_]+\d+)+", parts[1])
    return parts[1] if is_rank else ""


def _parse(text: str, reference: datetime) -> _Parsed:
    rank = ""
    while text.startswith("(") and (prefix := _PROCESS.match(text)):
        rank = " ".join(re.findall(r"[A-Z]+\d+", prefix[1])) or rank
        text = text[prefix.end() :]
    if text.startswith("{"):
        return _json(text)
    for pattern, build in _FORMATS:
        match = pattern.match(text)
        if match is not None:
            try:
                at, own_rank, message = build(match, reference)
            except (ValueError, OverflowError, OSError):
                break
            return at, own_rank or rank, message
    return None, rank, text


def _sglang(match: re.Match[str], now: datetime) -> _Parsed:
    message = match[9]
    inner = _INNER.match(message)
    return (
        _time(match[1], *match.group(2, 3, 4, 5, 6)),
        match[8].strip(),
        message[inner.end() :] if inner else message,
    )


def _vllm(match: re.Match[str], now: datetime) -> _Parsed:
    return _time(now.year, *match.group(1, 2, 3, 4, 5)), "", match[6]


def _iso(match: re.Match[str], now: datetime) -> _Parsed:
    rest = match[8]
    span = _RUST_SPAN.match(rest)
    if span is not None:
        # What a line says comes first; the request it belongs to follows.
        rest = f"{rest[span.end() :]} {span[0].rstrip(': ')}"
    noise = _RUST_NOISE.match(rest)
    return _time(match[1], *match.group(2, 3, 4, 5, 6)), "", rest[noise.end() :].strip() if noise else rest


def _trtllm(match: re.Match[str], now: datetime) -> _Parsed:
    month, day, own_year, hour, minute, second = match.group(1, 2, 3, 4, 5, 6)
    rank = f"RANK{match[7]}" if match[7] else ""
    return _time(own_year, month, day, hour, minute, second), rank, match[8]


def _glog(match: re.Match[str], now: datetime) -> _Parsed:
    return _time(now.year, *match.group(1, 2, 3, 4, 5)), "", match[6]


def _ucx(match: re.Match[str], now: datetime) -> _Parsed:
    return datetime.fromtimestamp(int(match[1]), UTC), "", re.sub(r"\s+", " ", match[2])


def _syslog(match: re.Match[str], now: datetime) -> _Parsed:
    month = _MONTHS.index(match[1]) + 1
    return _time(now.year, month, *match.group(2, 3, 4, 5)), "", match[6]


def _dmesg(match: re.Match[str], now: datetime) -> _Parsed:
    month = _MONTHS.index(match[1]) + 1
    return _time(match[6], month, *match.group(2, 3, 4, 5)), "", match[7]


def _clock(match: re.Match[str], now: datetime) -> _Parsed:
    return _time(now.year, now.month, now.day, *match.group(1, 2, 3)), "", match[4]


def _json(text: str) -> _Parsed:
    """Keep the whole line behind its message: the fields carry the addresses and errors."""
    stamp, message = _JSON_TIME.search(text), _JSON_MESSAGE.search(text)
    at = _time(*stamp.groups()) if stamp else None
    return at, "", f"{message[1]} {text}"[:MAX_LINE] if message else text


def _time(*parts: str | int) -> datetime:
    year, month, day, hour, minute, second = (int(part) for part in parts)
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)


_FORMATS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], datetime], _Parsed]], ...] = (
    (_SGLANG, _sglang),
    (_VLLM, _vllm),
    (_ISO, _iso),
    (_TRTLLM, _trtllm),
    (_GLOG, _glog),
    (_UCX, _ucx),
    (_DMESG, _dmesg),
    (_SYSLOG, _syslog),
    (_CLOCK, _clock),
)
