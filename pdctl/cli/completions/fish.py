"""The completion for fish."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.cli.completions.tree import HEADER, Command, Kind, Parameter, quoted

FISH_HEAD = """\
function __pdctl_state
    set -q XDG_STATE_HOME; and echo $XDG_STATE_HOME/pdctl; or echo $HOME/.local/state/pdctl
end

function __pdctl_instances
    for file in (__pdctl_state)/*/names
        cat $file
    end
end

function __pdctl_deployments
    for file in (__pdctl_state)/*/names
        basename (dirname $file)
    end
end

complete -c pdctl -f
"""

FISH_SOURCES = {
    Kind.FILE: " -r -F",
    Kind.INSTANCE: " -x -a '(__pdctl_instances)'",
    Kind.DEPLOYMENT: " -x -a '(__pdctl_deployments)'",
    Kind.NOTHING: " -x",
}


def fish(commands: Iterable[Command]) -> str:
    """Return `pdctl.fish`."""
    lines = [f"# {HEADER}", "", FISH_HEAD]
    for command in commands:
        seen = f"__fish_seen_subcommand_from {command.name}" if command.name else "__fish_use_subcommand"
        condition = f"complete -c pdctl -n {quoted(seen)}"
        if command.name:
            use = "complete -c pdctl -n __fish_use_subcommand"
            lines.append(f"{use} -a {command.name} -d {quoted(command.help)}")
        for option in command.options:
            flags = "".join(f" -l {f[2:]}" if f.startswith("--") else f" -s {f[1:]}" for f in option.flags)
            source = _fish_source(option) if option.takes_value else ""
            lines.append(f"{condition}{flags} -d {quoted(option.help)}{source}")
        if command.argument is not None and command.argument.kind is not Kind.NOTHING:
            lines.append(condition + _fish_source(command.argument).replace(" -x", ""))
    return "\n".join(lines) + "\n"


def _fish_source(parameter: Parameter) -> str:
    if parameter.kind is Kind.WORDS:
        return f" -x -a {quoted(' '.join(parameter.words))}"
    return FISH_SOURCES[parameter.kind]
