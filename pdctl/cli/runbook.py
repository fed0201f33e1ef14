"""`pdctl runbook`."""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.options import FileOption, NameOption


def runbook(
    finding: Annotated[
        str | None,
        typer.Argument(help="PDnnnn, name or label; without one, what was diagnosed last.", metavar="[CODE|LABEL]"),
    ] = None,
    instance: Annotated[
        list[str] | None, typer.Option("--instance", help="Which it is about. May be repeated.")
    ] = None,
    file: FileOption = None,
    name: NameOption = None,
) -> int:
    """Print the runbook of a finding with the names and addresses of a deployment in its commands.

    Without a finding: the runbook of the cause that `pdctl diagnose` found last here, on the instances it was on.
    `pdctl explain` prints the same without names, and needs no deployment.

    \b
    Examples:
      pdctl runbook
      pdctl runbook PD0301
      pdctl runbook PD0305 --instance decode-1

    \b
    Exit codes: 0 printed, 3 nothing is deployed, or nothing was diagnosed.
    """
    from pdctl.deployment.state import StateFolder, chosen, state_root
    from pdctl.evidence.kept import last_conclusion
    from pdctl.render import runbook as rendered
    from pdctl.runbooks import findings_called, read_runbook
    from pdctl.runbooks.names import filled, stand_ins

    root = state_root()
    deployment = chosen(name, file, root)
    subjects = instance or []
    if finding is None:
        last = last_conclusion(StateFolder(root, deployment.name).folder)
        finding = last.codes[0]
        known = [item.name for item in deployment.instances]
        subjects = subjects or [subject for subject in last.subjects if subject in known]
    names = stand_ins(deployment, subjects)
    rendered.show_text("\n".join(filled(read_runbook(code), names) for code in findings_called(finding)))
    return 0
