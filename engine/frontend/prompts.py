"""Prompts of a body to token ids: text or ids, one or many, or chat messages through the model's template."""

from __future__ import annotations

import asyncio

import msgspec

from engine.errors import RequestError
from engine.frontend.bodies import JSON, ChatMessage, ContentPart
from engine.frontend.chat_template import ChatTemplate, Message
from engine.frontend.sampling import Limits, check_length, check_token_ids
from engine.frontend.tokenizer import Tokenizer
from engine.frontend.tool_calls.in_words import in_words

MAX_PROMPTS = 64
CHARACTERS_PER_TOKEN = 16
"""More than any text but padding has, on average."""
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
LONG_TEXT = 20_000
"""Characters above which tokenising leaves the event loop: it takes about 1 ms per 1,000."""

PromptField = str | list[str | int | list[int]]


def split_prompts(field: PromptField, name: str) -> list[str | list[int]]:
    """Return the single prompts of a field. Raises RequestError (400) on an empty or mixed list."""
    if isinstance(field, str):
        return [field]
    kinds = {type(item) for item in field}
    if kinds == {int}:
        return [[item for item in field if isinstance(item, int)]]
    if len(kinds) != 1:
        problem = "an empty list" if not kinds else "a list that mixes texts, ids and lists of ids"
        raise RequestError(400, "invalid_value", f"{name}: {problem} is no prompt", name)
    if len(field) > MAX_PROMPTS:
        message = f"{name}: {len(field)} prompts in one request, at most {MAX_PROMPTS} are allowed"
        raise RequestError(400, "invalid_value", message, name)
    return [item for item in field if not isinstance(item, int)]


async def token_ids(
    prompt: str | list[int],
    tokenizer: Tokenizer,
    name: str,
    add_special: bool = True,
    limits: Limits | None = None,
) -> list[int]:
    """Return the token ids of a prompt, given or of its text: all of them are in the model's vocabulary.

    With `limits` a text that is much too long is refused by its beginning: else one body of 16 MB would cost
    ten seconds of tokenising. Raises RequestError (400).
    """
    if isinstance(prompt, list):
        check_token_ids(prompt, name, tokenizer.vocab_size)
        return prompt
    ids = await _encoded(prompt, tokenizer, add_special, limits)
    check_token_ids(ids, name, tokenizer.vocab_size)
    return ids


async def _encoded(prompt: str, tokenizer: Tokenizer, add_special: bool, limits: Limits | None) -> list[int]:
    if len(prompt) <= LONG_TEXT:
        return tokenizer.encode(prompt, add_special)
    if limits is not None and len(prompt) > limits.context_tokens * CHARACTERS_PER_TOKEN:
        beginning = prompt[: limits.context_tokens * CHARACTERS_PER_TOKEN]
        ids = await asyncio.to_thread(tokenizer.encode, beginning, add_special)
        check_length(len(ids), None, limits, at_least=True)
    return await asyncio.to_thread(tokenizer.encode, prompt, add_special)


def chat_text(
    template: ChatTemplate | None,
    messages: list[ChatMessage],
    tools: list[JSON] | None = None,
    add_generation_prompt: bool = True,
    extra: JSON | None = None,
) -> str:
    """Return the prompt text of a chat. Raises RequestError (400) when there is no template or it refuses."""
    if template is None:
        message = "this model has no chat template: use /v1/completions or /generate"
        raise RequestError(400, "no_chat_template", message, "messages")
    if not messages:
        raise RequestError(400, "invalid_value", "messages: at least one message is needed", "messages")
    try:
        plain = [_plain(message, f"messages[{at}]") for at, message in enumerate(messages)]
        if not template.takes_tools:
            plain, tools = in_words(plain, tools), None
    except RecursionError as error:
        raise RequestError(400, "invalid_value", f"messages: nested too deeply: {error}", "messages") from error
    return template.render(plain, tools, add_generation_prompt, extra)


def _plain(message: ChatMessage, name: str) -> Message:
    """Return the message as templates expect it: text content, arguments as objects, only the keys that were given.

    Raises RequestError (400) that names the field below `name` which is not as OpenAI documents it.
    """
    _check(message, name)
    plain: Message = msgspec.to_builtins(message)
    content = message.refusal if message.content is None else message.content
    plain["content"] = content if content is None or isinstance(content, str) else _joined(content, name)
    for call in plain.get("tool_calls") or ():
        call["function"]["arguments"] = _object(call["function"].get("arguments"))
    return plain


def _check(message: ChatMessage, name: str) -> None:
    if message.role not in ROLES:
        raise _bad(f"{name}.role", f"'{message.role}' is none of {', '.join(ROLES)}")
    speaks_otherwise = message.role == "assistant" and (
        message.tool_calls or message.refusal or message.reasoning_content
    )
    if not (message.content or message.content == "" or speaks_otherwise):
        raise _bad(f"{name}.content", "it is missing or has no parts")
    if message.role == "tool" and message.tool_call_id is None:
        raise _bad(f"{name}.tool_call_id", "the result of a tool needs the id of its call")
    for at, call in enumerate(message.tool_calls or ()):
        function = call.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise _bad(f"{name}.tool_calls[{at}].function", "it must be an object with a name")


def _object(arguments: object) -> object:
    """Return the object that OpenAI's clients send as JSON text; anything else as it is."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments


def _joined(parts: list[ContentPart], name: str) -> str:
    texts = []
    for at, part in enumerate(parts):
        text = {"text": part.text, "refusal": part.refusal}.get(part.type)
        if text is None:
            message = f"{name}.content[{at}]: content of type '{part.type}' is not supported, only text"
            raise RequestError(400, "unsupported_content", message, f"{name}.content[{at}]")
        texts.append(text)
    return "".join(texts)


def _bad(name: str, message: str) -> RequestError:
    return RequestError(400, "invalid_value", f"{name}: {message}", name)
