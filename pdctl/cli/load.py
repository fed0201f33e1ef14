"""`pdctl load`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from pdctl import signals
from pdctl.cli.options import FileOption, NameOption, Output, OutputOption

if TYPE_CHECKING:
    from pdctl.load.profile import Profile
    from pdctl.load.target import Aim

INTERRUPTED = 130


def load(
    url: Annotated[str | None, typer.Argument(help="Any OpenAI-compatible endpoint; else a deployment.")] = None,
    sessions: Annotated[
        int | None, typer.Option("--sessions", "-n", help="Sessions at once. [default: 8, with --bisect 60]")
    ] = None,
    duration: Annotated[str, typer.Option("--duration", help="How long, as 90s or 5m.")] = "60s",
    turns: Annotated[str, typer.Option("--turns", help="Requests of a session.")] = "1-4",
    prompt_tokens: Annotated[str, typer.Option("--prompt-tokens", help="Tokens that a turn adds, about.")] = "32-256",
    output_tokens: Annotated[str, typer.Option("--output-tokens", help="Tokens of an answer, at most.")] = "16-96",
    think: Annotated[str, typer.Option("--think", help="Seconds between an answer and the next turn.")] = "0",
    ramp: Annotated[str, typer.Option("--ramp", help="Time within which the first sessions begin.")] = "0s",
    tool_rate: Annotated[float, typer.Option("--tool-rate", help="Share of sessions that offer tools.")] = 0.25,
    canary_rate: Annotated[float, typer.Option("--canary-rate", help="Share of requests whose answer is known.")] = 0.1,
    abort_rate: Annotated[float, typer.Option("--abort-rate", help="Share of requests whose client leaves.")] = 0.0,
    kill_after: Annotated[
        str | None, typer.Option("--kill-after", help="Drop every connection at once after this time.")
    ] = None,
    request_timeout: Annotated[str, typer.Option("--request-timeout", help="After which a client gives up.")] = "120s",
    seed: Annotated[int, typer.Option("--seed", help="The same seed sends the same requests.")] = 0,
    bisect: Annotated[
        bool, typer.Option("--bisect", help="1 and 60 at once, one turn and several, with and without aborts.")
    ] = False,
    model: Annotated[str | None, typer.Option("--model", help="Model name in requests; else it is asked for.")] = None,
    target_name: Annotated[
        str | None, typer.Option("--target-name", help="Name of a target that was not started for drills.")
    ] = None,
    may_break: Annotated[
        str | None, typer.Option("--may-break", help="Its name again: clients may leave, and it may wedge.")
    ] = None,
    file: FileOption = None,
    name: NameOption = None,
    output: OutputOption = Output.TABLE,
) -> int:
    """Make the load that brings wedges and silent corruption out: agents with several turns and tools.

    Answers are checked, not only counted: some requests are canaries (our engine scores them; elsewhere the answer
    is known), and tool calls must be well-formed and leave no markup in the text. A target that was not started by
    `pdctl up --for-drills` needs its name typed, takes at most 32 sessions, and no client leaves it on purpose
    without --may-break. Ranges are written 32-512. Ctrl-C ends it early and prints what came of it.

    \b
    Examples:
      pdctl load --name drill -n 60 --duration 5m --kill-after 25s
      pdctl load http://10.0.0.7:30000 --target-name 10.0.0.7:30000 -n 4
      pdctl load --name drill --bisect --duration 30s

    \b
    Exit codes: 0 every request succeeded and every checked answer is right, 1 not, 2 wrong usage, 3 no target,
    5 refused: the target was not named as it must be.
    """
    from pdctl.load import grid, guard
    from pdctl.load import profile as profiles
    from pdctl.load.target import aimed

    signals.end_alike()
    wanted = profiles.Profile(
        sessions=sessions if sessions is not None else grid.CROWD if bisect else profiles.SESSIONS,
        turns=profiles.Range.parsed("--turns", turns),
        prompt_tokens=profiles.Range.parsed("--prompt-tokens", prompt_tokens),
        output_tokens=profiles.Range.parsed("--output-tokens", output_tokens),
        think_s=profiles.Range.parsed("--think", think),
        ramp_s=profiles.parsed_duration("--ramp", ramp),
        tool_rate=tool_rate,
        canary_rate=canary_rate,
        abort_rate=abort_rate,
        kill_after_s=None if kill_after is None else profiles.parsed_duration("--kill-after", kill_after),
        timeout_s=profiles.parsed_duration("--request-timeout", request_timeout),
        seed=seed,
    )
    profiles.check(wanted)
    aim = aimed(url, name, file, model)
    for each in grid.profiles(wanted) if bisect else (wanted,):
        guard.check(aim.target, each, typed_name=target_name, may_break=may_break)
    duration_s = profiles.parsed_duration("--duration", duration)
    return _bisected(aim, wanted, duration_s, output) if bisect else _loaded(aim, wanted, duration_s, output)


def _loaded(aim: Aim, wanted: Profile, duration_s: float, output: Output) -> int:
    from pdctl.load.background import BackgroundLoad
    from pdctl.render import console
    from pdctl.render import load as rendered

    is_interrupted = False
    with closing(aim.canaries()) as canaries, BackgroundLoad(aim.endpoint, wanted, canaries, duration_s) as running:
        try:
            with rendered.live_display() as show:
                while not running.wait(rendered.SHOW_S):
                    show(running.figures())
        except KeyboardInterrupt:
            is_interrupted = True
        figures = running.stop()
    if output is Output.JSON:
        print(rendered.figures_json(figures))
    else:
        rendered.print_figures(figures, console.stdout_console())
    return INTERRUPTED if is_interrupted else int(bool(figures.failed or figures.wrong))


def _bisected(aim: Aim, wanted: Profile, cell_s: float, output: Output) -> int:
    from pdctl.load import grid
    from pdctl.render import console
    from pdctl.render import load as rendered

    with closing(aim.canaries()) as canaries:
        cells = grid.fill(aim.endpoint, wanted, canaries, cell_s, console.tell)
    if output is Output.JSON:
        print(rendered.grid_json(cells))
    else:
        rendered.print_grid(cells, console.stdout_console())
    return int(any(cell.failed or cell.wrong for cell in cells))
