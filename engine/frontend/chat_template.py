"""Chat messages to prompt text, as Hugging Face renders `chat_template` (jinja2, sandboxed)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.errors import RequestError

log = logging.getLogger(__name__)

RENDER_ERRORS = (
    TemplateError,
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)
"""What a template, which is somebody else's program, may raise when messages are not what it expects."""

Message = dict[str, Any]
"""One message as the template sees it: `role`, `content`, and whatever else the client gave."""


class ChatTemplate:
    """A model's own template, compiled once. Rendering cannot reach the file system or private attributes."""

    def __init__(self, source: str, special: dict[str, str], now: Callable[[], datetime] = datetime.now) -> None:
        """Compile `source`; `special` holds `bos_token` and the like, which templates print."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: now().strftime(form)
        self._template = environment.from_string(source)
        self._special = special

        self.takes_tools = "tools" in source
        """False: the template would leave the tools out silently."""

    def render(
        self,
        messages: list[Message],
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        extra: dict[str, Any] | None = None,
    ) -> str:
        """Return the prompt text.

        Raises RequestError (400) when the template refuses the messages, e.g. roles out of turn.
        """
        names = self._special | (extra or {})
        names |= {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
        try:
            return self._template.render(names)
        except RENDER_ERRORS as error:
            message = f"the model's chat template does not take these messages: {error}"
            raise RequestError(400, "chat_template_error", message, "messages") from error


def compile_template(source: str | None, special: dict[str, str]) -> ChatTemplate | None:
    """Return the compiled template; None when the model has none, or (logged) one that does not compile."""
    if source is None:
        return None
    try:
        return ChatTemplate(source, special)
    except TemplateError as error:
        log.warning("the model's chat template does not compile, chat requests will be refused: %s", error)
        return None


def _to_json(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    # jinja2's own filter escapes HTML, which Hugging Face's does not.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
