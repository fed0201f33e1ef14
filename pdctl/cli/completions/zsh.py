"""The completion for zsh."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.cli.completions.tree import HEADER, Command, Kind, Parameter, quoted

ZSH_HEAD = """\
#compdef pdctl

_pdctl_instances() {
    local -a names
    names=(${(f)"$(cat ${XDG_STATE_HOME:-$HOME/.local/state}/pdctl/*/names(N) /dev/null)"})
    compadd -a names
}

_pdctl_deployments() {
    local -a names
    names=(${XDG_STATE_HOME:-$HOME/.local/state}/pdctl/*/names(N:h:t))
    compadd -a names
}

_pdctl() {
    local state line
    local -a commands
"""

ZSH_SOURCES = {
    Kind.FILE: ":file:_files",
    Kind.INSTANCE: ":instance:_pdctl_instances",
    Kind.DEPLOYMENT: ":deployment:_pdctl_deployments",
    Kind.NOTHING: ":value: ",
}


def zsh(commands: Iterable[Command]) -> str:
    """Return `_pdctl`."""
    root, *others = commands
    lines = [f"    commands=({' '.join(quoted(f'{c.name}:{c.help}') for c in others)})"]
    lines.append("    _arguments -C \\")
    lines += [f"        {spec} \\" for spec in _zsh_options(root)]
    lines += ["        '1:command:->command' '*::argument:->argument'", "    case $state in"]
    lines += [
        "        command) _describe command commands ;;",
        "        argument)",
        "            case $line[1] in",
    ]
    for command in others:
        specs = _zsh_options(command)
        if command.argument is not None:
            specs.append(quoted("*" + _zsh_source(command.argument)))
        lines.append(f"                {command.name}) _arguments \\")
        lines += [f"                    {spec} \\" for spec in specs[:-1]]
        lines.append(f"                    {specs[-1]} ;;")
    lines += ["            esac ;;", "    esac", "}", "", '_pdctl "$@"', ""]
    first, _, rest = ZSH_HEAD.partition("\n")
    return f"{first}\n# {HEADER}\n{rest}" + "\n".join(lines)


def _zsh_options(command: Command) -> list[str]:
    specs = []
    for option in command.options:
        text = option.help.replace("[", "(").replace("]", ")").replace(":", " ")
        source = _zsh_source(option) if option.takes_value else ""
        specs += [quoted(f"{flag}[{text}]{source}") for flag in option.flags]
    return specs


def _zsh_source(parameter: Parameter) -> str:
    if parameter.kind is Kind.WORDS:
        return f":value:({' '.join(parameter.words)})"
    return ZSH_SOURCES[parameter.kind]
