"""A folder -> Evidence, broken or not."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdctl.diagnose.diagnosis import diagnose
from pdctl.errors import UsageError
from pdctl.evidence.directory import evidence_of, read_directory
from pdctl.evidence.folder import flatten

_TOPOLOGY = b"""schema = "pdctl.incident/1"
captured_at = 2026-06-19T14:31:05Z
[[instance]]
name = "p"
role = "prefill"
dialect = "sglang"
tp = 4
"""


def test_the_topology_says_who_is_there() -> None:
    """Instances carry what the topology says of them; what it does not say is unknown."""
    evidence = evidence_of({"topology.toml": _TOPOLOGY, "p/http.toml": b'[[get]]\npath = "/health"\nstatus = 200\n'})
    [instance] = evidence.instances
    assert evidence.captured_at == datetime(2026, 6, 19, 14, 31, 5, tzinfo=UTC)
    assert (instance.role, instance.tp, instance.dp) == ("prefill", 4, None)
    assert instance.gets[0].status == 200
    assert instance.metrics is None
    assert instance.log is None


def test_bad_toml_names_file_and_line_and_the_rest_is_read() -> None:
    """One broken file costs that file only."""
    evidence = evidence_of(
        {
            "topology.toml": _TOPOLOGY,
            "p/process.toml": b"[[process]]\npid = \n",
            "p/http.toml": b'[[get]]\npath = "/health"\nerror = "refused"\n',
        }
    )
    [problem] = evidence.problems
    assert (problem.place.file, problem.place.line) == ("p/process.toml", 2)
    assert evidence.instances[0].gets[0].error == "refused"


def test_a_field_of_a_wrong_type_is_unknown() -> None:
    """`pid = "many"` leaves the pid unknown and says so."""
    evidence = evidence_of({"topology.toml": _TOPOLOGY, "p/process.toml": b'[[process]]\npid = "many"\nstate = "T"\n'})
    [process] = evidence.instances[0].processes
    assert process.pid is None
    assert process.state == "T"
    assert "many" in evidence.problems[0].message


def test_folders_and_topology_that_disagree_are_said() -> None:
    """A folder nobody lists and an instance without a folder are one clear line each."""
    evidence = evidence_of({"topology.toml": _TOPOLOGY, "stranger/log.txt": b"x"})
    messages = [problem.message for problem in evidence.problems]
    assert any("stranger" in message for message in messages)
    assert any("lists p" in message for message in messages)


def test_a_signal_may_be_a_name() -> None:
    """`SIGKILL` and 9 are the same."""
    evidence = evidence_of({"topology.toml": _TOPOLOGY, "p/process.toml": b'[[process]]\nsignal = "SIGKILL"\n'})
    assert evidence.instances[0].processes[0].signal == 9


def test_wrong_output_needs_an_answer() -> None:
    """`output_ok = false` beside a timeout says nothing about the output."""
    probe = b"[[probe]]\noutput_ok = false\n"
    files = {"topology.toml": _TOPOLOGY}
    assert evidence_of({**files, "probe.toml": probe + b"status = 200\n"}).probes[0].output == "garbled"
    assert evidence_of({**files, "probe.toml": probe + b'error = "timeout"\n'}).probes[0].output == "unchecked"


def test_truth_and_links_are_not_read(tmp_path: Path) -> None:
    """The right answer, free text and links out of the folder are no evidence."""
    (tmp_path / "topology.toml").write_bytes(_TOPOLOGY)
    (tmp_path / "truth.toml").write_text("this is = not toml [")
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "log.txt").symlink_to("/etc/hostname")
    assert read_directory(tmp_path).instances[0].log is None


def test_a_folder_without_topology_is_a_usage_error(tmp_path: Path) -> None:
    """It says what is missing."""
    with pytest.raises(UsageError, match=r"topology\.toml"):
        read_directory(tmp_path)


def test_load_reports_are_flattened() -> None:
    """Ranks are summed, the newest time is kept."""
    value = {"loads": [{"run": 2, "timestamp": 5}, {"run": 3, "timestamp": 4}], "version": "x"}
    assert flatten(value) == {"loads.run": 5.0, "loads.timestamp": 5.0}


_NAMES = st.sampled_from([
    "topology.toml", "probe.toml", "p/metrics.txt", "p/metrics.prev.txt", "p/loads.json", "p/log.txt", "p/stacks.txt",
    "p/stacks.json", "p/process.toml", "p/http.toml", "p/gpu.toml", "p/source.toml", "p/capture.toml", "q/log.txt",
])  # fmt: skip


@settings(deadline=None, max_examples=80)
@given(st.dictionaries(_NAMES, st.binary(max_size=200), max_size=6))
def test_no_bytes_in_any_file_raise(files: dict[str, bytes]) -> None:
    """Whatever stands in the files, there is evidence, and a report can be made of it."""
    report = diagnose(evidence_of({"topology.toml": _TOPOLOGY, **files}))
    assert report.abstains or report.verdict != "healthy"
