"""A fake of our engine and its router: the HTTP shapes that a probe reads, without a model or KV behind them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from pdctl.deployment.model import Deployment, Instance, Role
from tests.fakes.http_server import FakeServer, Reply, Request

OUTPUT_IDS = [11, 12, 13]
CONTRACT = {
    "dtype": "bfloat16",
    "page_size": "16",
    "layers": "2",
    "kv_heads": "3",
    "head_dim": "8",
}
PAGE_BYTES = 16 * 2 * 2 * 3 * 8 * 2
"""16 tokens, 2 layers, keys and values, 3 heads of 8 numbers of 2 bytes."""


def word_ids(text: str) -> list[int]:
    """Return one token id for each word, as this fake's tokenizer does."""
    return [100 + len(word) for word in text.split()]


@dataclass
class FakePair:
    """Prefill, decode and router that agree about requests; the switches make them misbehave."""

    prefill: FakeServer = field(default_factory=FakeServer)
    decode: FakeServer = field(default_factory=FakeServer)
    router: FakeServer = field(default_factory=FakeServer)
    recent: dict[str, list[dict[str, object]]] = field(default_factory=lambda: {"prefill": [], "decode": []})
    live: dict[str, list[dict[str, object]]] = field(default_factory=lambda: {"prefill": [], "decode": []})
    read_pages: int | None = None
    """Pages that decode claims to have read; None: those of the prompt."""
    gaps: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """How far below the best each answered token is scored."""
    clock_offset_s: float = 0.0
    kv_used: int = 100
    bodies: dict[str, dict[str, object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for role, server in (("prefill", self.prefill), ("decode", self.decode)):
            server.routes |= {
                "/server_info": Reply({"incarnation": "0" * 32, "contract": CONTRACT}),
                "/v1/loads": lambda _: Reply({"kv_tokens_used": self.kv_used, "kv_tokens_total": 1000}),
                "/rooms": lambda _, role=role: self._rooms(self.live[role]),
                "/rooms/recent": lambda _, role=role: self._rooms(self.recent[role]),
            }
        self.prefill.routes |= {
            "/tokenize": lambda request: Reply({"tokens": word_ids(str(request.json()["text"]))}),
            "/generate": self.prefill_generate,
        }
        self.decode.routes["/generate"] = self._serve
        self.router.routes["/generate"] = self._serve

    def deployment(self, *, version: str | None = None, dialect: str = "pdctl") -> Deployment:
        """Return the deployment that these servers are."""
        common = {"dialect": dialect, "version": version}
        instances = (
            Instance(name="prefill-0", role=Role.PREFILL, url=self.prefill.url, bootstrap_port=8998, **common),
            Instance(name="decode-0", role=Role.DECODE, url=self.decode.url, **common),
            Instance(name="router", role=Role.ROUTER, dialect="smg", url=self.router.url),
        )
        return Deployment(name="fake", model="tiny", instances=instances)

    def _rooms(self, records: list[dict[str, object]]) -> Reply:
        now = time.time() + self.clock_offset_s
        return Reply({"instance": "x", "incarnation": "0" * 32, "now": now, "rooms": records})

    def prefill_generate(self, request: Request) -> Reply:
        body = request.json()
        if "input_ids" not in body:
            self.bodies["prefill"] = body
            return Reply({"text": "", "output_ids": [OUTPUT_IDS[0]], "meta_info": {}})
        ids = body["input_ids"]
        assert isinstance(ids, list)
        answer = ids[-len(self.gaps) :]
        tokens = [(-1.0 - gap, token, None) for gap, token in zip(self.gaps, answer, strict=True)]
        best = [[(-1.0, 7, None)] for _ in self.gaps]
        return Reply(
            {
                "text": "",
                "output_ids": [],
                "meta_info": {"input_token_logprobs": tokens, "input_top_logprobs": best},
            }
        )

    def _serve(self, request: Request) -> Reply:
        body = request.json()
        self.bodies["decode"] = body
        self.record(str(request.headers["X-Request-ID"]), len(word_ids(str(body["text"]))))
        return Reply({"text": " flour and salt", "output_ids": OUTPUT_IDS, "meta_info": {}})

    def record(self, request_id: str, prompt_tokens: int) -> None:
        """Write down a request that went well, with stages 10, 20, ... ms after now."""
        start = time.time() + self.clock_offset_s
        pages = -(-prompt_tokens // 16) if self.read_pages is None else self.read_pages
        common = {
            "request_id": request_id,
            "rid": "r",
            "room": 5,
            "state": "closed",
            "prompt_tokens": prompt_tokens,
        }
        self.recent["prefill"].append(
            common
            | {
                "role": "prefill",
                "kv_bytes": -(-prompt_tokens // 16) * PAGE_BYTES,
                "at": {"received": start + 0.010, "paired": start + 0.020, "computed": start + 0.040},
            }
        )
        self.recent["decode"].append(
            common
            | {
                "role": "decode",
                "kv_bytes": pages * PAGE_BYTES,
                "transfer_s": 0.002,
                "at": {
                    "received": start + 0.012,
                    "landed": start + 0.070,
                    "first_token": start + 0.080,
                    "last_token": start + 0.100,
                },
            }
        )


@contextlib.contextmanager
def fake_pair(**switches: object) -> Iterator[FakePair]:
    """Run a pair and its router."""
    pair = FakePair(**switches)  # type: ignore[arg-type]
    with pair.prefill, pair.decode, pair.router:
        yield pair
