"""Collector: the metrics of one instance, in flat memory whatever the endpoint sends."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from pdctl.collect.context import Context
from pdctl.collect.http import Answer, Outcome
from pdctl.collect.records import Status, Taken
from pdctl.collect.target import Target
from pdctl.deployment.model import Instance

WHOLE_BYTES = 4 << 20
"""So much of a scrape is kept as it is; of the rest only samples, without histogram buckets."""
KEPT_BYTES = 8 << 20
READ_BYTES = 64 << 20
"""No engine's metrics are larger; an endless body ends here, or at its deadline."""
LINE_BYTES = 1 << 20
# A comment, a histogram bucket, a creation time: no analysis reads them, and they are four lines of five.
_UNUSED = re.compile(rb"^(?:#|[\w:]+_(?:bucket|created)[{ ]).*\n", re.M)


class Sieve:
    """Takes a scrape piece by piece. Past `whole_bytes` it keeps samples only, without histogram buckets."""

    def __init__(self, whole_bytes: int = WHOLE_BYTES) -> None:
        self.kept = bytearray()
        self.was_cut = False
        self._whole = whole_bytes
        self._read = 0
        self._rest = b""
        self._in_long_line = False

    def feed(self, piece: bytes) -> bool:
        """Take a piece; False once the scrape is larger than any real one."""
        self._read += len(piece)
        lines, newline, rest = (self._rest + piece).rpartition(b"\n")
        self._keep(lines + newline)
        if len(rest) > LINE_BYTES:
            # A line without end is no sample; what follows of it is passed over.
            self._in_long_line, self.was_cut, rest = True, True, b""
        self._rest = rest
        if self._read > READ_BYTES or len(self.kept) > KEPT_BYTES:
            self.was_cut = True
            return False
        return True

    def finish(self) -> bytes:
        """Return what was kept, with a last line that has no end as it came: it shows that the answer was cut."""
        if not self._in_long_line:
            self.kept += self._rest
        self._rest = b""
        return bytes(self.kept)

    def _keep(self, lines: bytes) -> None:
        if not lines:
            return
        if self._in_long_line:
            self._in_long_line = False
            lines = lines[lines.find(b"\n") + 1 :]
        self.kept += lines if self._read <= self._whole else _UNUSED.sub(b"", lines)


def metrics_place(instance: Instance) -> tuple[str, str]:
    """Return base URL and path of an instance's metrics."""
    if instance.metrics_url is None:
        return instance.url, "/metrics"
    parts = urlsplit(instance.metrics_url)
    path = parts.path or "/metrics"
    return f"{parts.scheme}://{parts.netloc}", path + (f"?{parts.query}" if parts.query else "")


async def take(target: Target, context: Context, name: str) -> list[Taken]:
    """Scrape once into the file `name`."""
    base_url, path = metrics_place(target.instance)
    sieve = Sieve(0 if context.is_fleet else WHOLE_BYTES)
    answer = await context.fetcher.get(
        target.instance,
        path,
        base_url=base_url,
        deadline_s=context.deadline.at_most(context.get_timeout_s),
        sink=sieve,
    )
    content = sieve.finish()
    problem = _problem(answer, content)
    if problem is not None:
        status, words = problem
        return [Taken(name=name, status=status, error=f"{answer.describe()}{words}", took_ms=answer.took_ms)]
    is_whole = answer.outcome is Outcome.ANSWERED and not sieve.was_cut
    return [
        Taken(
            name=name,
            content=content,
            took_ms=answer.took_ms,
            truncated=not is_whole,
            error=None if is_whole else f"{answer.describe()}: only the first {len(content)} bytes of interest",
        )
    ]


def _problem(answer: Answer, content: bytes) -> tuple[Status, str] | None:
    if answer.status is None:
        return (Status.TIMEOUT if answer.outcome is Outcome.TIMEOUT else Status.FAILED), ""
    if answer.status in (401, 403):
        return Status.DENIED, ": set api_key_file for this instance, or PDCTL_API_KEY"
    if answer.status == 404:
        return Status.ABSENT, ": start the engine with its metrics on (SGLang: --enable-metrics)"
    if answer.status != 200:
        return Status.FAILED, ""
    if content[:512].lstrip().startswith(b"<"):
        return Status.FAILED, ", but with HTML: the URL leads to something else"
    if not content.strip():
        return Status.FAILED, ", but with nothing in it"
    return None
