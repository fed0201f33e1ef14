"""`pdctl drill`."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdctl.cli.options import FileOption, NameOption, Output, OutputOption

if TYPE_CHECKING:
    from pdctl.deployment.model_files import ModelFile
    from pdctl.drill.catalogue import Drill
    from pdctl.drill.stage import Stage

ROUNDS = 10


def drill(
    which: Annotated[str | None, typer.Argument(help="Which drill; --list names them.", metavar="[DRILL]")] = None,
    auto: Annotated[bool, typer.Option("--auto", help="Go on: diagnose, restart, prove, and score it.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Every drill, and the fault matrix of all runs.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Say which drills there are.")] = False,
    runs: Annotated[int, typer.Option("--runs", min=1, help="With --all: runs of each drill.")] = ROUNDS,
    results: Annotated[Path, typer.Option("--results", help="With --all: file that each run is added to.")] = Path(
        "drill-results.jsonl"
    ),
    resume: Annotated[
        bool, typer.Option("--resume", help="With --all: only what the file lacks of these sources.")
    ] = False,
    model: Annotated[
        str | None, typer.Option("--model", help="`smollm2` (default), a GGUF file, or a Hugging Face folder.")
    ] = None,
    port_base: Annotated[int, typer.Option("--port-base", help="First of 100 ports for the drill's own.")] = 31000,
    seed: Annotated[int, typer.Option("--seed", help="Of the load; the same seed sends the same requests.")] = 0,
    file: FileOption = None,
    name: NameOption = None,
    output: OutputOption = Output.TABLE,
) -> int:
    """Cause one of the field's wedges for real, and let you find it.

    Starts a deployment of its own, applies load, causes the fault, waits until it is really there, and hands over:
    diagnose and repair it from another terminal. It stays until Ctrl-C, and then nothing of it is left running. A
    deployment that was not started by `pdctl up --for-drills` is never touched.

    \b
    Examples:
      pdctl drill --list
      pdctl drill mass-abort              then, elsewhere: pdctl diagnose --name drill
      pdctl drill mass-abort --auto
      pdctl drill --all --runs 10 --results matrix.jsonl --resume

    \b
    Exit codes: 0 done (--auto, --all: everything as it should be), 1 not, 2 wrong usage, 4 fault of pdctl or this
    machine, 5 refused: not a deployment for drills, 130 Ctrl-C.
    """
    from pdctl.drill.catalogue import DRILLS, drill_of
    from pdctl.errors import UsageError
    from pdctl.render import console
    from pdctl.render import drill as rendered

    if listed:
        if output is Output.JSON:
            print(rendered.list_json(DRILLS))
        else:
            rendered.print_list(DRILLS, console.stdout_console())
        return 0
    if every == (which is not None):
        raise UsageError("name one drill, or --all", "pdctl drill --list says which there are")
    # A time limit of CI and a closed terminal, like Ctrl-C; and Ctrl-C itself, which shells hide from `&`.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    if every:
        return _matrix(_model(model), runs, results, resume, port_base, seed, output)
    chosen = drill_of(which or "")
    is_borrowed = name is not None or file is not None
    if is_borrowed and chosen.flags:
        raise UsageError(f"{chosen.name} needs engines with other settings", "leave out --name and --file")
    with _stage(chosen, model, port_base, name, file) as stage:
        return _one(stage, chosen, auto, seed, output)


def _stage(
    chosen: Drill, model: str | None, port_base: int, name: str | None, file: Path | None
) -> AbstractContextManager[Stage]:
    from pdctl.drill.staging import borrowed
    from pdctl.render import console

    if name is not None or file is not None:
        return borrowed(name, file, console.tell)
    return _own_stage(chosen, _model(model), port_base)


def _own_stage(chosen: Drill, found: ModelFile, port_base: int) -> AbstractContextManager[Stage]:
    from pdctl.drill.staging import staged
    from pdctl.render import console
    from pdctl.render.starting import line_display

    return staged(found.path, found.served_name, chosen.flags, port_base, line_display(), console.tell)


def _model(model: str | None) -> ModelFile:
    from pdctl.deployment import model_files
    from pdctl.render import console, fetching

    with fetching.display() as fetched:
        return model_files.resolve(model or model_files.DEFAULT, fetched, console.tell)


def _one(stage: Stage, chosen: Drill, auto: bool, seed: int, output: Output) -> int:
    from pdctl.drill import rehearsal
    from pdctl.render import console
    from pdctl.render import drill as rendered

    causes_s = rehearsal.caused(stage, chosen, seed)
    if not auto:
        for line in rendered.handover_lines(chosen, stage.deployment.name):
            console.tell(line)
        rehearsal.attended(stage, chosen)
        return 0
    score = rehearsal.scored(stage, chosen, causes_s)
    if output is Output.JSON:
        print(rendered.score_json(score))
    else:
        rendered.print_score(score, console.stdout_console())
    return 0 if score.is_passed else 1


def _matrix(found: ModelFile, runs: int, results: Path, resume: bool, port_base: int, seed: int, output: Output) -> int:
    from pdctl.drill.catalogue import DRILLS
    from pdctl.drill.matrix import rows_of
    from pdctl.drill.sitting import Sitting
    from pdctl.render import console
    from pdctl.render import drill as rendered

    sitting = Sitting(results, model=found.served_name, seed=seed, say=console.tell)
    done = sitting.fill(DRILLS, runs, lambda chosen: _own_stage(chosen, found, port_base), resume=resume)
    rows = rows_of(done)
    if output is Output.JSON:
        print(rendered.matrix_json(rows))
    else:
        rendered.print_matrix(rows, console.stdout_console())
    return 0 if all(run.is_passed for run in done) else 1
