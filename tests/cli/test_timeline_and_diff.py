"""`pdctl timeline`, `pdctl diff`, `pdctl runbook` and the bug report, as a person runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdctl.cli import main
from tests.cli.test_diagnose import CORPUS


def test_a_time_line_of_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    """Oldest first, with the time before the capture."""
    assert main(["timeline", str(CORPUS / "i069")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2026-06-19 (UTC)"
    assert lines[1].split() == ["14:24:25", "-4m", "prefill", "6", "aborts", "within", "a", "minute"]
    assert lines[-1] == "2026-06-19 14:28:10  captured"


def test_a_time_line_of_one_instance_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The same moments as data."""
    assert main(["timeline", str(CORPUS / "i069"), "--instance", "decode", "-o", "json"]) == 0
    assert [row["instance"] for row in json.loads(capsys.readouterr().out)] == ["decode"]


def test_a_time_line_of_an_unknown_instance_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """It names those there are."""
    assert main(["timeline", str(CORPUS / "i069"), "--instance", "decode-9"]) == 2
    assert "prefill, decode, router" in capsys.readouterr().err


def test_where_nothing_has_a_time_it_cannot_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 3, one line."""
    (tmp_path / "topology.toml").write_text('[[instance]]\nname = "p"\nrole = "prefill"\n')
    assert main(["timeline", str(tmp_path)]) == 3
    assert capsys.readouterr().out == "nothing with a time is known\n"


def test_two_incidents_that_differ_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    """What differs is marked."""
    assert main(["diff", str(CORPUS / "i069"), str(CORPUS / "i075")]) == 1
    assert "! PD0301 bootstrap-thread-dead  supported  established" in capsys.readouterr().out


def test_an_incident_and_itself_exit_0(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing differs; with --all the rest is shown."""
    folder = str(CORPUS / "i069")
    assert main(["diff", folder, folder]) == 0
    assert capsys.readouterr().out == "nothing differs\n"
    assert main(["diff", folder, folder, "--all", "-o", "json"]) == 0
    assert not any(row["differs"] for row in json.loads(capsys.readouterr().out))


def test_a_bug_report_has_the_environment_and_no_names(capsys: pytest.CaptureFixture[str]) -> None:
    """Version, flags and stacks stand in it; instances and addresses are pseudonyms."""
    assert main(["diagnose", str(CORPUS / "i031"), "-o", "md", "--upstream"]) == 1
    text = capsys.readouterr().out
    assert "sglang 0.5.13.post1, tp 4" in text
    assert "--enable-hierarchical-cache" in text
    assert "[TP0] get_next_batch_to_run" in text
    assert "glm" not in text.lower().replace("glm5", "")
    assert "192.0.2." not in text


def test_a_bug_report_is_markdown_only(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, and how to ask for it."""
    assert main(["diagnose", str(CORPUS / "i031"), "--upstream"]) == 2
    assert "-o md --upstream" in capsys.readouterr().err


def test_a_runbook_without_a_deployment_cannot_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 3: `pdctl explain` is the one that needs none."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["runbook", "PD0301"]) == 3
    assert "nothing is deployed here" in capsys.readouterr().err
