"""An incident directory -> Evidence. `evidence_of` is pure; only `read_directory` touches the disk."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from pdctl.errors import UsageError
from pdctl.evidence import toml_files
from pdctl.evidence.folder import Files, Folder
from pdctl.evidence.model import Evidence, InstanceEvidence
from pdctl.evidence.records import Place, Problem
from pdctl.evidence.toml_files import Table

NEVER_READ = ("truth.toml", "notes.md")
"""Free text and the right answer: no analysis may see them."""

MAX_FILE = 256 * 1024 * 1024


def read_directory(path: Path) -> Evidence:
    """Load a folder. Links are not followed, files beyond 256 MB are cut; neither stops the rest.

    Raises UsageError when there is no such folder, or no topology in it.
    """
    if not path.is_dir():
        raise UsageError(f"{path} is no folder", "give the folder of an incident, with a topology.toml in it")
    files: dict[str, bytes] = {}
    problems: list[Problem] = []
    for item in sorted(path.rglob("*")):
        name = item.relative_to(path).as_posix()
        if item.is_symlink() or not item.is_file() or item.name in NEVER_READ or len(item.relative_to(path).parts) > 2:
            continue
        try:
            with item.open("rb") as stream:
                files[name] = stream.read(MAX_FILE)
        except OSError as error:
            problems.append(Problem(Place(name), f"cannot be read: {error.strerror}"))
    if "topology.toml" not in files:
        raise UsageError(
            f"{path} has no topology.toml", "write one: schema, captured_at and an [[instance]] table each"
        )
    folders = {item.name for item in path.iterdir() if item.is_dir()}
    evidence = evidence_of(files, folders)
    return msgspec.structs.replace(evidence, problems=(*problems, *evidence.problems))


def evidence_of(files: Files, folders: set[str] | None = None) -> Evidence:
    """Build the evidence from file contents. Whatever is wrong with a file becomes a problem, never an exception."""
    topology, bad_topology = toml_files.read_toml(files.get("topology.toml", b""), "topology.toml")
    captured = _time(topology.get("captured_at"))
    names = folders if folders is not None else {name.partition("/")[0] for name in files if "/" in name}
    instances: list[InstanceEvidence] = []
    found = list(bad_topology)
    for table in toml_files.tables(topology, "instance"):
        instance, faults = _instance(table, files, captured)
        instances.append(instance)
        found.extend(faults)
    declared = {item.name for item in instances}
    found.extend(
        Problem(Place("topology.toml"), f"does not list the folder {name}; its files were not used")
        for name in sorted(names - declared)
    )
    found.extend(
        Problem(Place("topology.toml"), f"lists {item.name}, but nothing was collected of it")
        for item in instances
        if item.name not in names
    )
    document, wrong = toml_files.read_toml(files.get("probe.toml", b""), "probe.toml")
    probes, bad = toml_files.probes(document, "probe.toml")
    return Evidence(
        captured_at=captured,
        captured_prev_at=_time(topology.get("captured_prev_at")),
        instances=tuple(instances),
        pairs=tuple(
            (str(item.get("prefill", "")), str(item.get("decode", ""))) for item in toml_files.tables(topology, "pair")
        ),
        probes=probes,
        problems=(*found, *wrong, *bad),
    )


def _time(value: object) -> datetime | None:
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


_NO_DATE = datetime(1970, 1, 1, tzinfo=UTC)
"""Completes log times where the capture has no date; ages then are meaningless and are not used."""

_TOPOLOGY_KEYS = (
    "name",
    "role",
    "dialect",
    "url",
    "version",
    "transfer",
    "bootstrap_port",
    "tp",
    "pp",
    "dp",
    "nodes",
)


def _instance(table: Table, files: Files, captured: datetime | None) -> tuple[InstanceEvidence, list[Problem]]:
    known = {key: value for key, value in table.items() if key in _TOPOLOGY_KEYS}
    base, problems = toml_files.record_of(known, InstanceEvidence, "topology.toml", str(table.get("name", "?")))
    folder = Folder(base.name, files, list(problems))
    capture = folder.capture()
    log, is_cut = folder.log(captured or _NO_DATE, capture)
    gets = folder.rows("http.toml", toml_files.gets)
    metrics, metrics_prev = folder.metrics("metrics.txt"), folder.metrics("metrics.prev.txt")
    return msgspec.structs.replace(
        base,
        capture=capture,
        metrics=metrics,
        metrics_prev=metrics_prev,
        loads=folder.loads("loads.json"),
        loads_prev=folder.loads("loads.prev.json"),
        log=log,
        log_truncated=is_cut,
        stacks=folder.stacks("stacks"),
        stacks_prev=folder.stacks("stacks.prev"),
        native=folder.stacks("native"),
        processes=folder.rows("process.toml", toml_files.processes),
        sockets=folder.rows("sockets.toml", toml_files.sockets),
        gets=gets,
        gets_prev=folder.rows("http.prev.toml", toml_files.gets),
        gpus=folder.rows("gpu.toml", toml_files.gpus),
        source=folder.record("source.toml", toml_files.source),
        server_info=folder.server_info(gets),
        flight=folder.marks("flight.bin"),
        rooms=folder.rooms("rooms.json"),
        rooms_recent=folder.rooms("rooms.recent.json"),
        history=folder.traces("history.json"),
    ), folder.problems
