"""The root of the command line: help, errors and exit codes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import pdctl_process
from tests.cli.standin_deployment import Standins, standins_in

COMMANDS = ("up", "down", "status", "logs", "attach", "probe")
HEAVY = ("httpx", "rich", "asyncio", "psutil", "pydantic", "ssl", "torch", "engine")


@pytest.fixture
def standins(tmp_path: Path) -> Iterator[Standins]:
    """A deployment that can be started."""
    yield from standins_in(tmp_path)


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, check=False
    )


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), *((command, "--help") for command in COMMANDS)])
def test_help_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    """Help and version cost little CPU because they load little."""
    code = (
        "import sys\n"
        "from pdctl.cli import main\n"
        "code = main(sys.argv[1:])\n"
        f"print(code, *[name for name in {HEAVY} if name in sys.modules], file=sys.stderr)\n"
    )
    assert python(code, *arguments).stderr.split() == ["0"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_has_examples(tmp_path: Path, command: str) -> None:
    """Each example is a call of that command, and lines fit 80 columns."""
    text = pdctl_process.run(tmp_path, command, "--help").stdout
    examples = text.partition("Examples:\n")[2].partition("\n\n")[0].splitlines()
    assert examples and all(line.startswith(f"    pdctl {command}") for line in examples)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("stauts",), "No such command 'stauts'. There are: up, down, status, logs, attach, probe, "),
        (("status", "--nonsense"), "No such option '--nonsense'"),
        (("status", "-o", "yaml"), "'yaml' is not one of 'table', 'json'"),
        (("up", "--prefill", "many"), "'many' is not a valid int"),
        (("up", "--prefill", "0"), "pdctl: --prefill 0 --decode 1 cannot be laid out"),
        (("up", "--port-base", "80"), "pdctl: --port-base 80 is out of range"),
        (("up", "--name", "a/b"), "pdctl: --name 'a/b' cannot be a name"),
        (("up", "--model", "/no/such"), "pdctl: there is no model '/no/such'"),
        (("up", "--file", "none.toml"), "pdctl: cannot read the deployment file none.toml"),
        (("logs", "-n", "-1"), "-1 is not in the range"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    """Exit 2, one message on stderr, nothing on stdout."""
    done = pdctl_process.run(tmp_path, *arguments)
    assert words in done.stderr
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        ("errors.PdctlError('no room', 'make some')", 4, "pdctl: no room\n  -> make some\n"),
        ("errors.UsageError('wrong')", 2, "pdctl: wrong\n"),
        ("errors.NotProven('silent')", 1, "pdctl: silent\n"),
        ("errors.CannotTell('dark')", 3, "pdctl: dark\n"),
        ("errors.Refused('unsafe')", 5, "pdctl: unsafe\n"),
        ("KeyboardInterrupt()", 130, ""),
    ],
)
def test_failures_become_one_message_and_a_code(failure: str, code: int, words: str) -> None:
    """As the exception tree says; no traceback."""
    program = (
        "import sys, types\n"
        "from pdctl import errors\n"
        "from pdctl.cli import main\n"
        f"def status(): raise {failure}\n"
        "sys.modules['pdctl.cli.status'] = types.SimpleNamespace(status=status)\n"
        "sys.exit(main(['status']))\n"
    )
    done = python(program)
    assert (done.returncode, done.stderr) == (code, words)


def test_ctrl_c_while_pdctl_itself_is_loaded() -> None:
    """The first 80 ms are imports: an interrupt there is 130 without a traceback, too."""
    program = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from pdctl.__main__ import main\n"
        "sys.exit(main())\n"
    )
    done = python(program)
    assert (done.returncode, done.stderr) == (130, "")


def test_unforeseen_failure_is_a_fault_of_pdctl() -> None:
    """Exit 4, never 1: a bug must not read as "not proven"; the traceback is shown."""
    program = (
        "import sys, types\n"
        "from pdctl.cli import main\n"
        "def status(): return {}['bug']\n"
        "sys.modules['pdctl.cli.status'] = types.SimpleNamespace(status=status)\n"
        "sys.exit(main(['status']))\n"
    )
    done = python(program)
    assert done.returncode == 4
    assert "KeyError: 'bug'" in done.stderr


def test_reader_that_leaves_is_no_error(standins: Standins) -> None:
    """`pdctl logs -f | head -1` ends without a traceback."""
    standins.up()
    log = standins.folder.paths("router").log
    log.write_text("line\n" * 100_000)
    with standins.start("logs", "-n", "100000", "router") as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "line\n"
        process.stdout.close()
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("variables", "has_colour"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_only_where_wanted(standins: Standins, variables: dict[str, str], has_colour: bool) -> None:
    """On a terminal, unless NO_COLOR or the terminal says no."""
    standins.up()
    leader, follower = pty.openpty()
    environment = pdctl_process.environment(standins.home, TERM="xterm-256color") | variables
    environment |= {"PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([*pdctl_process.COMMAND, "status"], cwd=standins.home, env=environment, stdout=follower, check=True)
    os.close(follower)
    drawn = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert "prefill-0" in drawn
    assert ("\x1b[32m" in drawn) is has_colour
