"""`pdctl probe`."""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.options import FileOption, NameOption, Output, OutputOption


def probe(
    direct: Annotated[bool, typer.Option("--direct", help="Each prefill x decode pair, without the router.")] = False,
    count: Annotated[int, typer.Option("--count", "-n", help="Requests for each way, one at a time.")] = 1,
    prompt_tokens: Annotated[
        int, typer.Option("--prompt-tokens", help="Length of the prompt, in tokens, about.")
    ] = 128,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait for each request.")] = 60.0,
    force: Annotated[bool, typer.Option("--force", help="Also where KV memory is at or above 95 %.")] = False,
    output: OutputOption = Output.TABLE,
    file: FileOption = None,
    name: NameOption = None,
) -> int:
    """Send a real request and time each stage of it.

    The request goes through the router, and its prompt begins with a fresh nonce, so KV really has to
    travel. On our engine the stages come from its own records, and prefill scores the tokens of the answer.
    SGLang, vLLM and Dynamo are asked a question with a known answer, and what a client can see is shown.

    A probe does no harm: one at a time for each pair, none when KV memory is full, and where an engine may
    not survive a client that leaves, a process keeps the connection open after a timeout or Ctrl-C.

    \b
    Examples:
      pdctl probe                          through the router
      pdctl probe --direct                 each pair by itself
      pdctl probe -n 5 --prompt-tokens 2000
      pdctl probe -o json | jq .results[0].kv_bytes

    \b
    Exit codes: 0 proven, 1 not proven, 3 could not tell, 5 refused (one is under way, or KV memory is full).
    """
    from pdctl.deployment.state import chosen, state_root
    from pdctl.probe import prove
    from pdctl.render import console
    from pdctl.render.probe import print_probe, probe_json

    report = prove(
        chosen(name, file, state_root()),
        direct=direct,
        count=count,
        prompt_tokens=prompt_tokens,
        timeout_s=timeout_s,
        force=force,
        progress=console.tell,
    )
    if output is Output.JSON:
        print(probe_json(report))
    else:
        print_probe(report, console.stdout_console())
    return report.exit_code
