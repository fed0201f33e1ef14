"""Prometheus text exposition -> records."""

from __future__ import annotations

import re

from pdctl.evidence.records import Exposition, Place, Problem, Sample

MAX_BYTES = 64 * 1024 * 1024
"""More than that is no scrape of one engine; the rest is not read."""

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
# A scraper that speaks OpenMetrics makes `sglang_x` of `sglang:x` (prometheus_client >= 0.23.1).
_ESCAPED = re.compile(r"^(sglang|vllm|trtllm)_")
_UNUSED = ("_bucket", "_created")


def parse_exposition(data: bytes, file: str) -> tuple[Exposition | None, tuple[Problem, ...]]:
    """Return the samples of a scrape and what was wrong with it; None when it is no exposition at all."""
    head = data[:512].lstrip()
    if head.startswith(b"<"):
        return None, (Problem(Place(file), "is HTML, not metrics: the URL leads to something else"),)
    problems = []
    if len(data) > MAX_BYTES:
        problems.append(Problem(Place(file), f"has {len(data)} bytes; only the first {MAX_BYTES} were read"))
        data = data[: data.rfind(b"\n", 0, MAX_BYTES) + 1]
    series: dict[str, list[Sample]] = {}
    bad: list[int] = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        name, _, _ = line.partition("{")
        if name.rstrip().partition(" ")[0].endswith(_UNUSED):
            continue
        if not _keep(line, series):
            bad.append(number)
    if bad:
        text = f"{len(bad)} of its lines are no samples (first: line {bad[0]}); truncated or no metrics"
        problems.append(Problem(Place(file, bad[0]), text))
    if not series:
        return None, tuple(problems) or (Problem(Place(file), "has no samples"),)
    kept = {name: tuple(samples) for name, samples in series.items()}
    return Exposition(kept, file), tuple(problems)


def _keep(line: str, series: dict[str, list[Sample]]) -> bool:
    match = _SAMPLE.match(line)
    if match is None:
        return False
    try:
        value = float(match[3])
    except ValueError:
        return False
    name = _ESCAPED.sub(r"\1:", match[1])
    series.setdefault(name, []).append(Sample(dict(_LABEL.findall(match[2] or "")), value))
    return True
