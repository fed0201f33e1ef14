"""`pip install .` alone, into a new virtual environment, as an operator's machine has it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
MOST_BYTES = 100 * 10**6
HEAVY = ("torch", "numpy", "nixl", "zmq", "transformers", "tokenizers", "uvicorn")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A virtual environment with pdctl and nothing that was not asked for."""
    folder = tmp_path_factory.mktemp("light") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = ["--python", folder / "bin" / "python"]
    install = [sys.executable, "-m", "pip", *python, "install", "--quiet", "--no-compile", REPOSITORY]
    done = subprocess.run(install, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    yield folder


def pdctl(venv: Path, *arguments: str, python_flags: str = "") -> subprocess.CompletedProcess[str]:
    """Run the installed command, far from the source tree, with an empty home."""
    home = venv.parent / "home"
    home.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    if python_flags:
        environment["PYTHONVERBOSE"] = python_flags
    command = [venv / "bin" / "pdctl", *arguments]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=60)


def test_every_command_has_help(venv: Path) -> None:
    """Also those that would need the engine to do their work."""
    for command in ("up", "down", "status", "logs", "attach", "probe"):
        done = pdctl(venv, command, "--help")
        assert (done.returncode, done.stderr) == (0, "")
        assert f"Usage: pdctl {command}" in done.stdout


def test_version(venv: Path) -> None:
    """As pyproject.toml says."""
    assert pdctl(venv, "--version").stdout == "pdctl 0.1.0\n"


def test_status_without_a_deployment(venv: Path) -> None:
    """It cannot tell, and says what to do."""
    done = pdctl(venv, "status")
    assert done.returncode == 3
    assert "nothing is deployed here" in done.stderr


def test_up_says_what_to_install(venv: Path) -> None:
    """Before a model is looked for, and nothing is started."""
    weights = venv.parent / "m.gguf"
    weights.write_bytes(b"GGUF")
    done = pdctl(venv, "up", "--model", str(weights))
    assert done.returncode == 4
    assert "the engine is not installed in" in done.stderr
    assert "pip install '.[engine]'" in done.stderr


def test_heavy_libraries_are_neither_installed_nor_imported(venv: Path) -> None:
    """No torch and none of its kind on disk; an import of them would show up in the verbose output."""
    (packages,) = venv.glob("lib/python3*/site-packages")
    names = {path.name.lower() for path in packages.iterdir()}
    assert not [name for name in names if name.startswith(HEAVY)]
    done = pdctl(venv, "status", python_flags="1")
    assert "import 'pdctl.cli.status'" in done.stderr
    assert not [name for name in HEAVY if f"import '{name}" in done.stderr]


def test_environment_is_small(venv: Path) -> None:
    """Under 100 MB."""
    size_bytes = sum(path.lstat().st_size for path in venv.rglob("*") if path.is_file())
    assert size_bytes < MOST_BYTES


def test_runbooks_are_installed(venv: Path) -> None:
    """Each one, and they can be read far from the source tree."""
    (folder,) = venv.glob("lib/python3*/site-packages/pdctl/runbooks")
    names = {path.name for path in (REPOSITORY / "pdctl" / "runbooks").glob("*.md")}
    assert len(names) >= 48
    assert {path.name for path in folder.glob("*.md")} == names
    done = pdctl(venv, "explain", "PD0301")
    assert (done.returncode, done.stdout) == (0, (folder / "PD0301-bootstrap-thread-dead.md").read_text())
