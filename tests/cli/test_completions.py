"""The committed completions, in the real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import pdctl_process

FOLDER = Path(__file__).parents[2] / "completions"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the state of two deployments, a file to complete, and no python on the PATH."""
    for deployment, instances in (("day", "prefill-0\ndecode-0\n"), ("night", "decode-7\n")):
        folder = tmp_path / "state" / "pdctl" / deployment
        folder.mkdir(parents=True)
        (folder / "names").write_text(instances)
    (tmp_path / "weights.gguf").touch()
    programs = tmp_path / "bin"
    programs.mkdir()
    for program in ("cat", "basename", "dirname", "sed", "bash", "zsh", "fish"):
        if path := shutil.which(program):
            (programs / program).symlink_to(path)
    return tmp_path


def shell(name: str, home: Path, *arguments: str) -> list[str]:
    """Run a shell, which must be there when CI=true, and return what it prints."""
    if shutil.which(name) is None:
        message = f"{name} is not installed: apt-get install {name}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    environment = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "PATH": str(home / "bin"), "TERM": "dumb"}
    done = subprocess.run(
        [name, *arguments], cwd=home, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def bash(home: Path, line: str) -> list[str]:
    """Complete the last word of a line as bash does on TAB: words are split at `=` too."""
    words = line.replace("=", " = ").split(" ")
    array = " ".join(f"'{word}'" for word in words)
    script = f"""
        compopt() {{ :; }}  # only allowed while readline completes
        source {FOLDER}/pdctl.bash
        COMP_WORDS=({array}); COMP_CWORD={len(words) - 1}
        complete -p pdctl >/dev/null && _pdctl
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return shell("bash", home, "--noprofile", "--norc", "-c", script)


@pytest.mark.parametrize("hash_seed", ["1", "2", "3"])
def test_committed_files_are_what_would_be_generated(hash_seed: str) -> None:
    """`make completions` was run after the last change of a command; the order of no set decides."""
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parent), "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "pdctl.cli.completions", "--check"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_stale_file_is_noticed(tmp_path: Path) -> None:
    """Each file is compared with what the command tree gives now."""
    code = (
        "import pathlib, sys, pdctl.cli\n"
        "pdctl.cli.COMMANDS.pop('probe')\n"
        "from pdctl.cli.completions import generate\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "print(*[name for name, text in generate().items() if (folder / name).read_text() != text])\n"
    )
    command = [sys.executable, "-c", code, str(FOLDER)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(FOLDER.parent)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["pdctl.bash", "_pdctl", "pdctl.fish"]


def test_every_command_is_offered(tmp_path: Path, home: Path) -> None:
    """The commands that `pdctl --help` lists."""
    text = pdctl_process.run(tmp_path, "--help").stdout
    listed = text.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    # A help line that is too long goes on in the next line, further to the right.
    assert bash(home, "pdctl ") == [line.split()[0] for line in listed if line[2] != " "]


@pytest.mark.parametrize(
    ("line", "candidates"),
    [
        ("pdctl stat", ["status"]),
        ("pdctl --v", ["--version"]),
        ("pdctl logs ", ["prefill-0", "decode-0", "decode-7"]),
        ("pdctl logs -f dec", ["decode-0", "decode-7"]),
        ("pdctl logs --fo", ["--follow"]),
        ("pdctl status -o ", ["table", "json"]),
        ("pdctl status --output=j", ["json"]),
        ("pdctl status --output=", ["table", "json"]),
        ("pdctl down --name ", ["day", "night"]),
        ("pdctl up --model w", ["weights.gguf"]),
        ("pdctl up --restart ", ["no", "on-failure"]),
        ("pdctl up --prefill ", []),
        ("pdctl up --port", ["--port-base"]),
        ("pdctl nonsense", []),
    ],
)
def test_bash(home: Path, line: str, candidates: list[str]) -> None:
    """TAB after this line offers exactly these."""
    assert bash(home, line) == candidates


def test_bash_without_any_state(home: Path) -> None:
    """Nothing was ever deployed: no candidates, and no complaint."""
    shutil.rmtree(home / "state")
    assert bash(home, "pdctl logs ") == []
    assert bash(home, "pdctl down --name ") == []


@pytest.mark.parametrize(
    ("line", "candidates"),
    [
        ("pdctl stat", ["status"]),
        ("pdctl logs dec", ["decode-0", "decode-7"]),
        ("pdctl status -o ", ["json", "table"]),
        ("pdctl down --name ", ["day", "night"]),
    ],
)
def test_fish(home: Path, line: str, candidates: list[str]) -> None:
    """fish can be asked for its candidates."""
    script = f"source {FOLDER}/pdctl.fish; complete -C '{line}' | sed 's/\\t.*//'"
    assert sorted(shell("fish", home, "--no-config", "-c", script)) == candidates


@pytest.mark.parametrize(
    ("helper", "candidates"),
    [("_pdctl_instances", ["prefill-0", "decode-0", "decode-7"]), ("_pdctl_deployments", ["day", "night"])],
)
def test_zsh(home: Path, helper: str, candidates: list[str]) -> None:
    """The file defines its functions, and its lists come from the state files."""
    script = f"""
        compadd() {{ eval "print -l \\$${{@[-1]}}" }}
        _arguments() {{ : }}
        source {FOLDER}/_pdctl
        {helper}
    """
    assert shell("zsh", home, "-f", "-c", script) == candidates
