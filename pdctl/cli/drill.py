"""`pdctl drill`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pdctl import signals
from pdctl.cli.options import FileOption, NameOption, Output, OutputOption

if TYPE_CHECKING:
    from pdctl.deployment.model_files import ModelFile
    from pdctl.drill.catalogue import Drill
    from pdctl.drill.sitting import MakeStage, Sitting
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
    legacy_health: Annotated[
        bool, typer.Option("--legacy-health", help="/health is 200 whatever is wrong, as the field's engines have it.")
    ] = False,
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
    signals.end_alike()
    if every:
        from pdctl.drill.sitting import Sitting

        found = _model(model)
        make_stage = partial(_own_stage, found=found, port_base=port_base, legacy_health=legacy_health)
        sitting = Sitting(results, model=found.served_name, seed=seed, say=console.tell)
        return _matrix(sitting, make_stage, runs, resume, output)
    chosen = drill_of(which or "")
    is_borrowed = name is not None or file is not None
    if is_borrowed and (chosen.flags or legacy_health):
        raise UsageError(f"{chosen.name} needs engines with other settings", "leave out --name and --file")
    with _stage(chosen, model, port_base, legacy_health, name, file) as stage:
        return _one(stage, chosen, auto, seed, output)


def _stage(
    chosen: Drill, model: str | None, port_base: int, legacy_health: bool, name: str | None, file: Path | None
) -> AbstractContextManager[Stage]:
    from pdctl.drill.staging import borrowed
    from pdctl.render import console

    if name is not None or file is not None:
        return borrowed(name, file, console.tell, ranks=chosen.ranks)
    return _own_stage(chosen, found=_model(model), port_base=port_base, legacy_health=legacy_health)


def _own_stage(chosen: Drill, found: ModelFile, port_base: int, legacy_health: bool) -> AbstractContextManager[Stage]:
    from pdctl.drill.staging import staged
    from pdctl.render import console
    from pdctl.render.starting import line_display

    every = ("--legacy-health",) if legacy_health else ()
    progress = line_display()
    return staged(
        found.path,
        found.served_name,
        chosen.flags,
        port_base,
        progress,
        console.tell,
        every=every,
        ranks=chosen.ranks,
    )


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


def _matrix(sitting: Sitting, make_stage: MakeStage, runs: int, resume: bool, output: Output) -> int:
    from pdctl.drill.catalogue import DRILLS
    from pdctl.drill.matrix import rows_of
    from pdctl.render import console
    from pdctl.render import drill as rendered

    done = sitting.fill(DRILLS, runs, make_stage, resume=resume)
    rows = rows_of(done)
    if output is Output.JSON:
        print(rendered.matrix_json(rows))
    else:
        rendered.print_matrix(rows, console.stdout_console())
    return 0 if all(run.is_passed for run in done) else 1
