"""Messages between the API process and the scheduler process (msgpack over ZeroMQ PUSH/PULL, one host)."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How to choose tokens. The API has checked every value; `seed` is always set."""

    max_tokens: int
    """0 asks for a score of the prompt only."""
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0: no limit."""
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    """Counts prompt and output tokens; the other two count output tokens (OpenAI)."""
    seed: int = 0
    """Random numbers are a function of (seed, position) only."""
    logit_bias: dict[int, float] = {}
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    """No end-of-sequence or stop token before that many output tokens."""
    logprobs: bool = False
    top_logprobs: int = 0
    """With `logprobs`: how many alternatives per output token."""
    grammar: str | None = None
    """What the answer must follow, as llguidance writes it."""
    prompt_logprobs: int | None = None
    """None: not asked. k >= 0: each prompt token's logprob and k alternatives."""
    prompt_logprobs_start: int = 0
    """First prompt position whose logprob is wanted (position 0 has none: null)."""


class RoomRef(msgspec.Struct, frozen=True):
    """Where the two legs of a request meet, as the router wrote it into the body."""

    host: str
    port: int
    room: int


class Generate(msgspec.Struct, frozen=True, kw_only=True, tag="generate"):
    """One sequence to compute (`n` > 1 is `n` of these)."""

    rid: str
    """Unique in this instance."""
    request_id: str
    """X-Request-ID of the client, or one made up; the same on both legs when a router passes it on."""
    prompt_ids: list[int]
    sampling: SamplingParams
    room: RoomRef | None = None
    received_at: float
    """Unix time at which the HTTP request arrived."""
    deadline_s: float
    """Seconds from `received_at` after which the request fails."""


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """End a request; unknown ids are ignored. `rid` may be a request_id: then all of its sequences end."""

    rid: str
    reason: str
    satisfied: bool = False
    """The client has all it wanted (a stop string was found): not a failure."""


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Take no new request; finish what is there; then exit 0."""


ToScheduler = Generate | Abort | Drain


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """Natural log of the probability the model gave `token_id`, and the best alternatives, best first."""

    token_id: int
    logprob: float
    top: list[tuple[int, float]] = []


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"


class Delta(msgspec.Struct, frozen=True, kw_only=True, tag="delta"):
    """New tokens of one sequence; the last one carries `finish`."""

    rid: str
    token_ids: list[int]
    logprobs: list[TokenLogprob] | None = None
    """As many as `token_ids`, when asked."""
    prompt_logprobs: list[TokenLogprob | None] | None = None
    """In the first delta, from `prompt_logprobs_start` on, when asked."""
    finish: FinishReason | None = None
    stop_token_id: int | None = None
    """The token that ended it, when `finish` is stop (also the last of `token_ids`)."""
    cached_tokens: int = 0


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """The sequence ended in an error; its pages are free or being fenced."""

    rid: str
    status: int
    """HTTP status: 400, 404, 500, 502 or 503, the ones a router passes on."""
    code: str
    """Stable word for programs, e.g. `peer_gone`, `pairing_timeout`, `queue_full`."""
    message: str


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The scheduler has loaded the model and serves."""

    context_length: int
    kv_tokens: int
    control_endpoint: str | None
    """Prefill: `tcp://host:port` of the control channel, for the registry."""
    contract: dict[str, str]
    load_s: float


class Batch(msgspec.Struct, frozen=True, tag="batch"):
    """What one step has to say; one message a step keeps the API process out of the way."""

    items: list[Delta | Failure]


FromScheduler = Batch | Ready


class Observe(msgspec.Struct, frozen=True):
    """A question to the observer thread (REQ/REP); answered even while the loop is stuck."""

    what: str
    """`metrics` | `rooms` | `recent` | `ledger` | `loads` | `health` | `transfer`; see `engine.observe.records`."""
    argument: str = ""
    """Of `arm` and `disarm`: which failpoint."""
