"""Chat templates render as Hugging Face's `apply_chat_template` does."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from engine.errors import RequestError
from engine.frontend.chat_template import ChatTemplate, compile_template

MESSAGES = [
    {"role": "system", "content": "Be <brief> & 'kind'."},
    {"role": "user", "content": "Grüße, 世界\n"},
    {"role": "assistant", "content": "hi"},
    {"role": "user", "content": "again"},
]
FUNCTION = {"name": "f", "description": "naïve <x>", "parameters": {"b": 1, "a": [True]}}
TOOLS = [{"type": "function", "function": FUNCTION}]
TEMPLATES = {
    "trims blocks": "{% for m in messages %}\n  {% if m.role == 'user' %}\n{{ m.content }}|\n"
    "  {% endif %}\n{% endfor %}\n",
    "loop controls": "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "tojson keeps text": "{{ tools | tojson }}",
    "tojson indents": "{% for t in tools %}{{ t | tojson(indent=2) }}{% endfor %}",
    "special tokens": "{{ bos_token }}{{ messages[0]['content'] | trim }}{{ eos_token }}",
    "generation prompt": "{% if add_generation_prompt %}go{% else %}stop{% endif %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "extra names": "{{ 'thinking' if enable_thinking is defined and enable_thinking else 'quick' }}",
}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_renders_as_transformers_does(name: str, add_generation_prompt: bool) -> None:
    """Same text as transformers' own renderer, whitespace and escapes included."""
    from transformers.utils.chat_template_utils import render_jinja_template

    expected, _ = render_jinja_template(
        conversations=[MESSAGES],
        tools=TOOLS,
        chat_template=TEMPLATES[name],
        add_generation_prompt=add_generation_prompt,
        enable_thinking=True,
        **SPECIAL,
    )
    template = ChatTemplate(TEMPLATES[name], SPECIAL)
    rendered = template.render(MESSAGES, TOOLS, add_generation_prompt, {"enable_thinking": True})
    assert rendered == expected[0]


def test_template_may_refuse_messages() -> None:
    """raise_exception becomes a 400 with the template's words."""
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", {})
    with pytest.raises(RequestError, match="roles must alternate") as caught:
        template.render(MESSAGES)
    assert (caught.value.status, caught.value.code) == (400, "chat_template_error")


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% include 'secret' %}",
        "{{ messages[0]['content'] + 5 }}",
        "{{ 1 // 0 }}",
    ],
)
def test_template_cannot_do_harm(source: str) -> None:
    """Private attributes, changes and files are out of reach; errors inside are a 400."""
    with pytest.raises(RequestError):
        ChatTemplate(source, {}).render(MESSAGES)


def test_today_comes_from_the_clock() -> None:
    """Templates that print the date get it."""
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", {}, now=lambda: datetime(2026, 11, 29))
    assert template.render(MESSAGES) == "29 Nov 2026"


def test_missing_and_broken_templates_are_none(caplog: pytest.LogCaptureFixture) -> None:
    """A model without a usable template still serves completions; a broken one is logged."""
    assert compile_template(None, {}) is None
    assert compile_template("{% if %}", {}) is None
    assert "does not compile" in caplog.text


def test_templates_of_the_real_model(smollm2_path: Path) -> None:
    """SmolLM2's own template adds its default system prompt, and ends where the answer begins."""
    from engine.frontend.tokenizer import load_tokenizer

    source = load_tokenizer(smollm2_path).chat_template
    assert source is not None
    text = ChatTemplate(source, {}).render([{"role": "user", "content": "hi"}])
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


def test_to_json_is_pythons(tmp_path: Path) -> None:
    """tojson does not escape HTML, unlike jinja2's own filter."""
    value: dict[str, Any] = {"a": "<b> & 'c' é"}
    rendered = ChatTemplate("{{ tools | tojson }}", {}).render([], [value])
    assert json.loads(rendered) == [value]
    assert "<b> & 'c' é" in rendered
