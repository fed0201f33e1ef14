"""Archives that are cut short can be read, hostile ones are refused, and nobody else can read ours."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from pdctl.errors import PdctlError, UsageError
from pdctl.evidence import archive, kept, manifest
from pdctl.evidence.manifest import Manifest

FILES = {"a/log.txt": b"one\n" * 100, "a/metrics.txt": b"x 1\n", "topology.toml": b'schema = "pdctl.incident/1"\n'}
INVENTORY = Manifest(
    deployment="d", tool_version="0", captured_at="2026-01-01T00:00:00Z", took_s=1.0, is_complete=True,
    files=tuple(manifest.FileEntry(path=name, size_bytes=len(data), sha256="") for name, data in FILES.items()),
)  # fmt: skip


def test_what_is_written_is_read_by_us_and_by_tar(tmp_path: Path) -> None:
    """The same bytes under the same names; mode 0600; the manifest is the first entry."""
    path = tmp_path / "x.tar.gz"
    archive.write(path, INVENTORY, FILES)
    files = archive.read(path)
    assert {name: data for name, data in files.items() if name != "manifest.json"} == FILES
    assert path.stat().st_mode & 0o777 == 0o600
    listed = subprocess.run(["tar", "tzf", str(path)], capture_output=True, text=True, check=True)
    assert listed.stderr == ""
    assert listed.stdout.split()[0] == "manifest.json"
    assert sorted(listed.stdout.split()) == sorted([*FILES, "manifest.json"])


@pytest.mark.parametrize("kept_share", [0.2, 0.5, 0.9, 0.999])
def test_archive_that_was_cut_anywhere_gives_what_it_has(tmp_path: Path, kept_share: float) -> None:
    """A killed writer leaves half a member: what came before is whole, and the rest is named."""
    path = tmp_path / "x.tar.gz"
    archive.write(path, INVENTORY, FILES)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept_share)])
    try:
        files = archive.read(path)
    except UsageError:
        assert kept_share < 0.5  # not even the manifest is whole
        return
    assert all(files[name] == FILES[name] for name in files if name in FILES)
    assert set(archive.missing(files)) == set(FILES) - set(files)


def test_full_disk_leaves_whole_files_and_says_what_is_missing(tmp_path: Path) -> None:
    """The writer hits the file size limit of its process (EFBIG stands for ENOSPC): a real failed write."""
    script = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "from pathlib import Path\n"
        "import random\n"
        "from pdctl.evidence import archive, manifest\n"
        "from pdctl.errors import PdctlError\n"
        "chance = random.Random(1)\n"
        "files = {f'a/{n}': chance.randbytes(500) for n in range(9)}\n"
        "listed = tuple(manifest.FileEntry(path=n, size_bytes=500, sha256='') for n in files)\n"
        "facts = dict(deployment='', tool_version='', captured_at='', took_s=0, is_complete=True)\n"
        "inventory = manifest.Manifest(files=listed, **facts)\n"
        "try:\n"
        "    archive.write(Path(sys.argv[1]), inventory, files)\n"
        "except PdctlError as error:\n"
        "    print(error.message)\n"
    )
    path = tmp_path / "x.tar.gz"
    ran = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert "is not complete (File too large)" in ran.stdout
    files = archive.read(path)
    assert 1 <= len(files) - 1 < 9
    assert len(archive.missing(files)) == 9 - (len(files) - 1)
    assert all(len(data) == 500 for name, data in files.items() if name != "manifest.json")


def _tar(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as made:
        for member in members:
            made.addfile(member, io.BytesIO(b"\0" * member.size))
    return path


def _member(name: str, change: Callable[[tarfile.TarInfo], None] = lambda member: None) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = 3
    change(member)
    return member


def _symbolic(member: tarfile.TarInfo) -> None:
    member.type, member.linkname, member.size = tarfile.SYMTYPE, "/etc/passwd", 0


def _hard(member: tarfile.TarInfo) -> None:
    member.type, member.linkname, member.size = tarfile.LNKTYPE, "../x", 0


def _device(member: tarfile.TarInfo) -> None:
    member.type, member.size = tarfile.CHRTYPE, 0


@pytest.mark.parametrize(("member", "words"), [
    (_member("../escaped"), "outside its folder"),
    (_member("a/../../escaped"), "outside its folder"),
    (_member("/etc/cron.d/x"), "outside its folder"),
    (_member("a/link", _symbolic), "has a link or device"),
    (_member("a/link", _hard), "has a link or device"),
    (_member("a/device", _device), "has a link or device"),
])  # fmt: skip
def test_hostile_members_are_refused(tmp_path: Path, member: tarfile.TarInfo, words: str) -> None:
    """Paths upwards, absolute paths, links and devices; named, and the rest is not used either."""
    path = _tar(tmp_path / "x.tar.gz", _member("good"), member)
    with pytest.raises(UsageError, match=words):
        archive.read(path)


def test_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    """Two gigabytes of zeros in some kilobytes: the announced size is enough."""
    path = tmp_path / "bomb.tar.gz"
    bomb = tarfile.TarInfo("zeros")
    bomb.size = 2 << 30
    import gzip

    path.write_bytes(gzip.compress(bomb.tobuf() + b"\0" * 1_000_000))
    with pytest.raises(UsageError, match="unpacks to more than 1024 MB"):
        archive.read(path)


def test_what_is_no_archive_is_told(tmp_path: Path) -> None:
    """A text file, and nothing at all."""
    path = tmp_path / "x.tar.gz"
    path.write_text("hello")
    with pytest.raises(UsageError, match="no readable archive"):
        archive.read(path)
    with pytest.raises(UsageError, match="neither a folder nor an archive"):
        archive.read(tmp_path / "nowhere")


def test_share_keeps_the_mapping_beside_the_exact_evidence_only(tmp_path: Path) -> None:
    """The archive has counts; the folder knows which pseudonym is whose."""
    folder = tmp_path / "incident"
    (folder / "acme-one").mkdir(parents=True)
    (folder / "topology.toml").write_text('[[instance]]\nname = "acme-one"\nrole = "decode"\n')
    (folder / "acme-one" / "log.txt").write_text("acme-one is up\n")
    path = archive.share(folder)
    files = archive.read(path)
    assert path == tmp_path / "incident-shared.tar.gz"
    assert files["decode-x1/log.txt"] == b"decode-x1 is up\n"
    assert b"acme" not in b"".join(files.values())
    kept_mapping = msgspec.json.decode((folder / "redaction.json").read_bytes())
    assert kept_mapping["mapping"]["acme-one"] == "decode-x1"


def test_archive_is_whole_where_the_mapping_finds_no_room(tmp_path: Path) -> None:
    """It is what can be sent; and it is an error of pdctl's own kind, which a recovery passes over."""
    kept_folder = tmp_path / "incident"
    (kept_folder / "redaction.json").mkdir(parents=True)
    (kept_folder / "topology.toml").write_bytes(FILES["topology.toml"])
    with pytest.raises(PdctlError, match=r"cannot write .*redaction.json"):
        archive.share(kept_folder, tmp_path / "x.tar.gz")
    assert "topology.toml" in archive.read(tmp_path / "x.tar.gz")


def test_manifest_of_the_archive_is_true(tmp_path: Path) -> None:
    """Sizes and hashes are those of the shared files, not of the exact ones."""
    folder = tmp_path / "incident"
    folder.mkdir()
    (folder / "topology.toml").write_text('[[instance]]\nname = "acme-one"\nrole = "decode"\n')
    files = archive.read(archive.share(folder))
    inventory = msgspec.json.decode(files["manifest.json"], type=Manifest)
    import hashlib

    assert {entry.path: (entry.size_bytes, entry.sha256) for entry in inventory.files} == {
        name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items() if name != "manifest.json"
    }


def test_conclusion_in_the_archive_names_nobody(tmp_path: Path) -> None:
    """What was concluded is kept under the same pseudonyms as everything else, also of who is in no topology."""
    folder = tmp_path / "incident"
    (folder / "acme-one").mkdir(parents=True)
    (folder / "topology.toml").write_text('[[instance]]\nname = "acme-one"\nrole = "decode"\n')
    (folder / "acme-one" / "log.txt").write_text("acme-one and prefill-0\n")
    told = manifest.Conclusion(
        incident_id="0f", verdict="wedged", codes=("PD101",), subjects=("acme-one", "prefill-0", "acme-gone"),
        symptoms=("stalled acme-one queue of acme-one", "silent acme-gone ", "silent prefill-0 rank 1"),
    )  # fmt: skip
    manifest.write(folder, msgspec.structs.replace(INVENTORY, conclusion=told))
    files = archive.read(archive.share(folder))
    shown = msgspec.json.decode(files["manifest.json"], type=Manifest).conclusion
    assert shown == manifest.Conclusion(
        incident_id="0f", verdict="wedged", codes=("PD101",), subjects=("decode-x1", "prefill-0", "instance-x1"),
        symptoms=("stalled decode-x1 queue of decode-x1", "silent instance-x1 ", "silent prefill-0 rank 1"),
    )  # fmt: skip
    assert b"acme" not in b"".join(files.values())


def test_folder_of_no_known_instance_has_a_pseudonym(tmp_path: Path) -> None:
    """Where the topology is broken, the folders still are called as the instances are."""
    folder = tmp_path / "incident"
    (folder / "acme-one").mkdir(parents=True)
    (folder / "topology.toml").write_text("[[instance")
    (folder / "acme-one" / "log.txt").write_text("acme-one\n")
    files = archive.read(archive.share(folder))
    assert files["instance-x1/log.txt"] == b"instance-x1\n"
    assert not [name for name in files if "acme" in name]


def test_manifest_finds_changed_and_missing_files(tmp_path: Path) -> None:
    """After the fact."""
    for name in ("one", "two", "three"):
        (tmp_path / name).write_text(name)
    inventory = msgspec.structs.replace(INVENTORY, files=manifest.files_of(tmp_path))
    manifest.write(tmp_path, inventory)
    assert manifest.damaged(tmp_path, inventory) == ()
    (tmp_path / "one").write_text("eno")
    (tmp_path / "two").unlink()
    assert manifest.damaged(tmp_path, inventory) == ("one: changed", "two: missing")


def test_kept_evidence_is_private_and_forgotten_after_14_days(tmp_path: Path) -> None:
    """Mode 0700; older folders and archives go when a new one is made."""
    import os

    old = kept.fresh_directory(tmp_path)
    (old / "file").write_text("x")
    (old.parent / "old-shared.tar.gz").write_text("x")
    recent = kept.fresh_directory(tmp_path)
    for path in (old, old.parent / "old-shared.tar.gz"):
        os.utime(path, (0, 0))
    new = kept.fresh_directory(tmp_path)
    assert new.stat().st_mode & 0o777 == 0o700
    assert sorted(new.parent.iterdir()) == sorted([recent, new])
