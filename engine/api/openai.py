"""What the generating routes share: names of requests, and fields that must not be ignored silently."""

from __future__ import annotations

import secrets

from starlette.requests import Request

from engine.errors import RequestError
from engine.frontend.bodies import ChatBody, CompletionBody, OpenAIBody

MAX_ID_LENGTH = 256


def request_id_of(request: Request, rid: str | None) -> str:
    """Return the client's id of this request (X-Request-ID, else `rid`), or a new one."""
    given = request.headers.get("x-request-id") or rid
    if given is None:
        return secrets.token_hex(16)
    if len(given) > MAX_ID_LENGTH or not given.isprintable():
        message = f"the request id must be at most {MAX_ID_LENGTH} printable characters"
        raise RequestError(400, "invalid_value", message, "rid")
    return given


def check_openai(body: OpenAIBody) -> None:
    """Raise RequestError (400) for what would change the answer's form and is not supported."""
    if body.stream_options is not None and not body.stream:
        message = "stream_options: only allowed together with stream"
        raise RequestError(400, "invalid_value", message, "stream_options")
    if isinstance(body, ChatBody):
        _check_chat(body)
    elif isinstance(body, CompletionBody):
        _check_completion(body)


def _check_chat(body: ChatBody) -> None:
    if body.functions or body.function_call not in (None, "none", "auto"):
        name = "functions" if body.functions else "function_call"
        raise _unsupported(name, "deprecated by OpenAI; use tools and tool_choice")
    if set(body.modalities or ()) - {"text"}:
        raise _unsupported("modalities", "only 'text'")
    if body.top_logprobs and not body.logprobs:
        message = "top_logprobs: only allowed together with logprobs"
        raise RequestError(400, "invalid_value", message, "top_logprobs")


def _check_completion(body: CompletionBody) -> None:
    if body.suffix:
        raise _unsupported("suffix", "text is only written behind a prompt")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise _unsupported("best_of", "it must be n where it is given: all that is sampled is answered")


def _unsupported(name: str, message: str) -> RequestError:
    return RequestError(400, "unsupported", f"{name}: not supported: {message}", name)
