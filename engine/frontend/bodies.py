"""Request bodies as clients and routers write them. Unknown fields are ignored, wrong types refused by name.

`None` means not given: clients and routers send explicit nulls. Which values are sensible is decided in
`engine.frontend.sampling` and `engine.frontend.prompts`.
"""

from __future__ import annotations

import re
from typing import Any, Protocol, TypeVar

import msgspec

from engine.errors import RequestError

JSON = dict[str, Any]


class Routed(Protocol):
    """The rendezvous that a router adds to every generating body."""

    bootstrap_host: str | list[str] | None
    bootstrap_port: int | list[int | None] | None
    bootstrap_room: int | list[int] | None


class Knobs(msgspec.Struct, kw_only=True):
    """How to sample; the names that all three routes share."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    logit_bias: dict[int, float] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    n: int | None = None


class GenerateKnobs(Knobs, kw_only=True):
    """`sampling_params` of /generate."""

    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    json_schema: str | None = None
    sampling_seed: int | None = None
    """SGLang's word for `seed`."""

    def __post_init__(self) -> None:
        if self.seed is None:
            self.seed = self.sampling_seed


class GenerateBody(msgspec.Struct, kw_only=True):
    """POST /generate, SGLang style."""

    bootstrap_host: str | list[str] | None = None
    bootstrap_port: int | list[int | None] | None = None
    bootstrap_room: int | list[int] | None = None
    rid: str | None = None
    model: str | None = None
    stream: bool | None = None
    text: str | list[str] | None = None
    input_ids: list[int | list[int]] | None = None
    sampling_params: GenerateKnobs | list[GenerateKnobs] | None = None
    return_logprob: bool | None = None
    logprob_start_len: int | None = None
    """First prompt position whose logprob is wanted; -1: none."""
    top_logprobs_num: int | None = None
    return_text_in_logprobs: bool | None = None


class StreamOptions(msgspec.Struct, kw_only=True):
    include_usage: bool | None = None


class JsonSchema(msgspec.Struct, kw_only=True):
    name: str | None = None
    schema: JSON | None = None
    strict: bool | None = None
    """The schema is enforced in either case."""


class ResponseFormat(msgspec.Struct, kw_only=True):
    type: str
    json_schema: JsonSchema | None = None


class OpenAIBody(Knobs, kw_only=True):
    """What the two OpenAI routes share."""

    bootstrap_host: str | list[str] | None = None
    bootstrap_port: int | list[int | None] | None = None
    bootstrap_room: int | list[int] | None = None
    rid: str | None = None
    model: str | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None


class CompletionBody(OpenAIBody, kw_only=True):
    """POST /v1/completions."""

    prompt: str | list[str | int | list[int]]
    logprobs: bool | int | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None


class ContentPart(msgspec.Struct, kw_only=True):
    type: str
    text: str | None = None
    refusal: str | None = None


class ChatMessage(msgspec.Struct, kw_only=True, omit_defaults=True):
    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[JSON] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None


class FunctionBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    name: str
    description: str | None = None
    parameters: JSON | None = None
    """JSON schema of the arguments."""
    strict: bool | None = None
    """Enforce the schema in calls that the model may choose to make; in those it must make it always is."""


class ToolBody(msgspec.Struct, kw_only=True):
    type: str
    function: FunctionBody


class NamedFunction(msgspec.Struct, kw_only=True):
    name: str


class NamedTool(msgspec.Struct, kw_only=True):
    type: str
    function: NamedFunction


class ChatBody(OpenAIBody, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[ToolBody] | None = None
    tool_choice: str | NamedTool | None = None
    """auto | none | required, or one by name."""
    parallel_tool_calls: bool | None = None
    functions: list[JSON] | None = None
    function_call: str | JSON | None = None
    """What `tools` and `tool_choice` were before; refused."""
    modalities: list[str] | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: JSON | None = None


class TokenizeBody(msgspec.Struct, kw_only=True):
    """POST /tokenize; one of `text`, `prompt` (the same) or `messages`."""

    text: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_special_tokens: bool = True


class DetokenizeBody(msgspec.Struct, kw_only=True):
    tokens: list[int]
    skip_special_tokens: bool = False


class AbortBody(msgspec.Struct, kw_only=True):
    rid: str | None = None
    abort_all: bool = False


class FailpointBody(msgspec.Struct, kw_only=True):
    name: str
    on: bool


Body = TypeVar("Body", bound=msgspec.Struct)
AT = re.compile(r" - at (?:`(?:key|value)` in )?`\$(.*)`$")
"""Where in the body something is wrong, as msgspec says it."""
MISSING = re.compile(r"missing required field `(\w+)`")


def read_body(raw: bytes, kind: type[Body]) -> Body:
    """Return the typed body. Raises RequestError (400) that names the field or says where the JSON breaks."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        message, path, missing = AT.sub("", str(error)), AT.search(str(error)), MISSING.search(str(error))
        param = ".".join(part for part in (path and path[1].lstrip("."), missing and missing[1]) if part) or None
        raise RequestError(400, "invalid_type", f"{param or 'body'}: {message}", param) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(400, "invalid_json", f"the body is not valid JSON: {error}") from error
