"""Secrets and words of clients, drawn by chance, planted where incidents have had them."""

from __future__ import annotations

import base64
import json
import random
import string
from dataclasses import dataclass
from urllib.parse import quote

ALPHABET = string.ascii_letters + string.digits + "+/_-"
WORDS = ("umbrella", "harvest", "violin", "marble", "lantern", "orchard", "velvet", "compass", "thunder", "meadow")


@dataclass(frozen=True)
class Plant:
    """A line of a log or of a file, and what must not be found in any product."""

    text: str
    forbidden: tuple[str, ...]


def secret(chance: random.Random) -> str:
    """Return a key of 24 to 48 characters that no pattern of an issuer marks."""
    return "".join(chance.choice(ALPHABET) for _ in range(chance.randint(24, 48)))


def credential(chance: random.Random) -> Plant:
    """Return one secret in one of the places and escapings in which they turn up."""
    value = secret(chance)
    doubly = json.dumps(json.dumps({"api_key": value}))
    text = chance.choice([
        f"request headers: Authorization: Bearer {value}",
        f"{{'authorization': 'Bearer {value}', 'host': 'x'}}",
        json.dumps({"headers": {"Authorization": f"Bearer {value}"}}),
        f"python -m sglang.launch_server --api-key {value} --port 30000",
        f"argv: ['--api-key', '{value}', '--tp', '8']",
        f"argv: --admin-api-key={value} --port 1",
        f"HF_TOKEN={value}",
        f"environment AWS_SECRET_ACCESS_KEY='{value}' PATH=/bin",
        f"connecting to https://operator:{quote(value, safe='')}@registry.example/v2",
        f"GET /v1/models?api_key={quote(value, safe='')}&limit=1",
        f"server_args=ServerArgs(model_path='/m', api_key='{value}', admin_api_key=None, host='0.0.0.0')",
        doubly,
        f'body: {{\\"password\\": \\"{value}\\"}}',
        f"ValueError: bad token: {value}",
        f"    raise AuthError(secret='{value}')",
        f"Authorization: Basic {base64.b64encode(f'operator:{value}'.encode()).decode()}",
    ])  # fmt: skip
    forms = {value, quote(value, safe=""), base64.b64encode(f"operator:{value}".encode()).decode()}
    return Plant(text, tuple(forms))


def words_of_a_client(chance: random.Random) -> Plant:
    """Return a prompt or an answer as engines and routers print them; its words occur nowhere else."""
    marks = [f"{chance.choice(WORDS)}{chance.randint(1000, 9999)}" for _ in range(chance.randint(3, 9))]
    words = " ".join(marks)
    ids = [chance.randint(100_000, 999_999) for _ in range(12)]
    forbidden = (*marks, f"{ids[0]}, {ids[1]}", f"{ids[0]},{ids[1]}")
    text = chance.choice([
        f"Receive: obj=GenerateReqInput(rid='a1', text='{words}', input_ids={ids}, sampling_params={{'n': 1}})",
        f'Received request cmpl-1: prompt: {words!r}, params: SamplingParams(n=1), prompt_token_ids: {ids}.',
        json.dumps({"model": "m", "messages": [{"role": "user", "content": words}]}),
        json.dumps(json.dumps({"prompt": words, "input_ids": ids})),
        f"Finish: obj=..., out={{'text': \"{words}\", 'output_ids': {ids}, 'meta_info': {{}}}}",
        f"delta: {{'content': '{words}'}}",
        f'INFO: prompt: {words}',
        f'text="{words[:20]}\n{words[20:]}" and more',
    ])  # fmt: skip
    return Plant(text, forbidden)
