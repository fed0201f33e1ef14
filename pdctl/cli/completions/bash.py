"""The completion for bash."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.cli import COMMANDS
from pdctl.cli.completions.tree import HEADER, Command, Kind, Parameter

BASH_FUNCTIONS = """\
_pdctl_instances() {
    cat "${XDG_STATE_HOME:-$HOME/.local/state}"/pdctl/*/names 2>/dev/null
}

_pdctl_deployments() {
    local file
    for file in "${XDG_STATE_HOME:-$HOME/.local/state}"/pdctl/*/names; do
        [[ -e $file ]] && basename "$(dirname "$file")"
    done
}

_pdctl() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= words= i
    COMPREPLY=()
    # `--file=x` arrives as three words.
    if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
            @NAMES@) command=${COMP_WORDS[i]}; break ;;
        esac
    done
    case $command:$prev in
@VALUES@
    esac
    case $command:$cur in
@OPTIONS@
@ARGUMENTS@
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}

complete -F _pdctl pdctl
"""

BASH_SOURCES = {
    Kind.FILE: 'compopt -o filenames; COMPREPLY=($(compgen -f -- "$cur")); return',
    Kind.INSTANCE: "words=$(_pdctl_instances)",
    Kind.DEPLOYMENT: "words=$(_pdctl_deployments)",
    Kind.NOTHING: "return",
}


def bash(commands: Iterable[Command]) -> str:
    """Return `pdctl.bash`."""
    values, options, arguments = [], [], []
    for command in commands:
        flags = " ".join(flag for option in command.options for flag in option.flags)
        options.append(f'        {command.name}:-*) words="{flags}" ;;')
        for option in command.options:
            if option.takes_value:
                patterns = "|".join(f"{command.name}:{flag}" for flag in option.flags)
                source = _bash_source(option)
                end = source if source.endswith("return") else _bash_reply(source)
                values.append(f"        {patterns}) {end} ;;")
        if command.argument is not None and command.argument.kind is not Kind.NOTHING:
            arguments.append(f"        {command.name}:*) {_bash_source(command.argument)} ;;")
    arguments.append(f'        :*) words="{" ".join(COMMANDS)}" ;;')
    return f"# {HEADER}\n\n" + (
        BASH_FUNCTIONS.replace("@NAMES@", "|".join(COMMANDS))
        .replace("@VALUES@", "\n".join(values))
        .replace("@OPTIONS@", "\n".join(options))
        .replace("@ARGUMENTS@", "\n".join(arguments))
    )


def _bash_source(parameter: Parameter) -> str:
    if parameter.kind is Kind.WORDS:
        return f'words="{" ".join(parameter.words)}"'
    return BASH_SOURCES[parameter.kind]


def _bash_reply(source: str) -> str:
    return f'{source}; COMPREPLY=($(compgen -W "$words" -- "$cur")); return'
