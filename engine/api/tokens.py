"""POST /tokenize and POST /detokenize: the very ids that the generating routes would use."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from engine.api.bodies import raw_body
from engine.api.responses import json_response
from engine.api.service import service_of
from engine.errors import RequestError
from engine.frontend.bodies import DetokenizeBody, TokenizeBody, read_body
from engine.frontend.prompts import chat_text, token_ids
from engine.frontend.sampling import check_token_ids


class Tokenized(msgspec.Struct, frozen=True):
    tokens: list[int]
    count: int
    max_model_len: int


class Detokenized(msgspec.Struct, frozen=True):
    text: str
    prompt: str
    """The same; vLLM's name."""


async def tokenize(request: Request) -> Response:
    """Return the token ids of a text, or of chat messages through the template."""
    service = service_of(request)
    body = read_body(await raw_body(request), TokenizeBody)
    if body.messages is not None:
        text, add_special = chat_text(service.template, body.messages), False
    else:
        given = body.text if body.text is not None else body.prompt
        if given is None:
            raise RequestError(400, "invalid_value", "give text, prompt or messages", "text")
        text, add_special = given, body.add_special_tokens
    ids = await token_ids(text, service.tokenizer, "text", add_special)
    return json_response(Tokenized(ids, len(ids), service.limits.context_tokens))


async def detokenize(request: Request) -> Response:
    """Return the text of token ids."""
    service = service_of(request)
    body = read_body(await raw_body(request), DetokenizeBody)
    check_token_ids(body.tokens, "tokens", service.tokenizer.vocab_size)
    text = service.tokenizer.decode(body.tokens, body.skip_special_tokens)
    return json_response(Detokenized(text, text))
