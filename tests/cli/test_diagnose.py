"""`pdctl diagnose DIR` and `pdctl codes`, as a person runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdctl.cli import main
from tests.cli.pdctl_process import run
from tests.corpus.incidents import CORPUS


def test_a_wedge_exits_1_and_names_the_cause(capsys: pytest.CaptureFixture[str]) -> None:
    """The screen shows the code and the command."""
    assert main(["diagnose", str(CORPUS / "i075")]) == 1
    assert "PD0301" in capsys.readouterr().out


def test_a_terminal_that_cannot_say_a_sign_gets_the_rest(tmp_path: Path) -> None:
    """In a locale of ASCII the report is a report, and the exit code that of the verdict."""
    done = run(tmp_path, "diagnose", str(CORPUS / "i075"), PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (1, "")
    assert "PD0301" in done.stdout


@pytest.mark.parametrize("form", ["table", "short", "json", "md"])
def test_the_form_does_not_change_the_exit_code(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Load is no failure in any form."""
    assert main(["diagnose", str(CORPUS / "i005"), "-o", form]) == 0
    assert "PD0901" in capsys.readouterr().out


def test_json_is_one_document_and_problems_go_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broken file is one line on stderr, stdout stays a document, and the verdict says that nothing is known."""
    (tmp_path / "topology.toml").write_text('[[instance]]\nname = "p"\nrole = "prefill"\n')
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "process.toml").write_text("[[process]]\npid = \n")
    assert main(["diagnose", str(tmp_path), "-o", "json"]) == 3
    streams = capsys.readouterr()
    assert json.loads(streams.out)["verdict"] == "unknown"
    assert "p/process.toml:2" in streams.err


def test_a_suspected_label_is_answered_for_each_of_its_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """One label may be several findings."""
    assert main(["diagnose", str(CORPUS / "i005"), "--suspect", "oom", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["suspicions"]
    assert sorted(row["code"] for row in rows) == ["PD0702", "PD0703"]


@pytest.mark.parametrize("option", ["--suspect", "--only"])
def test_an_unknown_finding_is_a_usage_error(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, and the one that was probably meant."""
    assert main(["diagnose", str(CORPUS / "i005"), option, "PD301"]) == 2
    assert "PD0301" in capsys.readouterr().err


def test_an_accepted_finding_fails_nothing_and_an_ended_one_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """i053: a leak on an instance that serves on."""
    folder = str(CORPUS / "i053")
    assert main(["diagnose", folder, "--suppress", "PD0403=pf-7@2026-12-31", "-o", "json"]) != 1
    assert json.loads(capsys.readouterr().out)["suppressed"] == ["PD0403"]
    assert main(["diagnose", folder, "--suppress", "PD0403=pf-7@2026-08-01", "-o", "short"]) == 1
    assert "has ended" in capsys.readouterr().err


def test_no_such_folder_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, and what to give instead."""
    assert main(["diagnose", str(tmp_path / "nowhere")]) == 2
    assert "topology.toml" in capsys.readouterr().err


def test_codes_lists_every_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """As a table and as JSON."""
    assert main(["codes"]) == 0
    assert "PD0501" in capsys.readouterr().out
    assert main(["codes", "-o", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) > 40
