"""Tools for a chat template that knows nothing of them: said in words, in the Hermes format."""

from __future__ import annotations

import json

from engine.frontend.bodies import JSON
from engine.frontend.chat_template import Message
from engine.frontend.tool_calls.hermes import BEGIN, END

INSTRUCTION = f"""# Tools

You may call one or more functions. Their signatures are within <tools></tools>:
<tools>
%s
</tools>

For each call, write a JSON object with the function's name and arguments:
{BEGIN}
{{"name": <function-name>, "arguments": <args-json-object>}}
{END}"""


def in_words(messages: list[Message], tools: list[JSON] | None) -> list[Message]:
    """Return messages of role and content only, with the tools in the system message."""
    plain = [_plain(message) for message in messages]
    if not tools:
        return plain
    text = INSTRUCTION % "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    if plain[0]["role"] == "system":
        first = plain.pop(0)
        text = f"{first['content']}\n\n{text}"
    return [{"role": "system", "content": text}, *plain]


def _plain(message: Message) -> Message:
    content = message.get("content") or ""
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"}
    calls = [f"{BEGIN}\n{_call(call)}\n{END}" for call in message.get("tool_calls") or ()]
    if not calls:
        return message | {"content": content}
    return {"role": message["role"], "content": "\n".join([content, *calls] if content else calls)}


def _call(call: JSON) -> str:
    function = call.get("function", {})
    return json.dumps({"name": function.get("name"), "arguments": function.get("arguments")}, ensure_ascii=False)
