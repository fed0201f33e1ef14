"""`pdctl snapshot` and `redact`, as a user calls them, on stand-in engines that print and carry secrets."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from pdctl.evidence import archive
from tests.cli.standin_deployment import Standins, standins_in
from tests.unit.pdctl.evidence.planted import Plant, credential, secret, words_of_a_client


@pytest.fixture
def standins(tmp_path: Path) -> Iterator[Standins]:
    """A deployment that can be started."""
    yield from standins_in(tmp_path)


def planted(standins: Standins, seed: int) -> tuple[list[Plant], list[Plant]]:
    """Start engines with a key on their command line, and write plants into decode's log, split over its rotation."""
    chance = random.Random(seed)
    key = secret(chance)
    standins.behave(prefill_0=f"--api-key {key}", decode_0=f"--admin-api-key={key}")
    assert standins.up().returncode == 0
    secrets = [credential(chance) for _ in range(60)]
    words = [words_of_a_client(chance) for _ in range(60)]
    lines = [f"2026-06-19T14:30:01.000 INFO [decode-0 api] x: {plant.text}\n" for plant in (*secrets, *words)]
    chance.shuffle(lines)
    text = "".join(lines).encode()
    log = standins.folder.paths("decode-0").log
    form = next(form for form in secrets[0].forbidden if form.encode() in text)
    cut = text.index(form.encode()) + 7  # in the middle of a secret
    log.with_name(log.name + ".1").write_bytes(text[:cut])
    log.write_bytes(text[cut:])
    return [Plant("argv", (key,)), *secrets], words


@pytest.mark.parametrize("seed", range(3))
def test_planted_secrets_are_in_neither_product_and_words_not_in_the_shared_one(standins: Standins, seed: int) -> None:
    """Command lines, logs, and a secret that the log's rotation has split."""
    secrets, words = planted(standins, seed)
    done = json.loads(standins.run("snapshot", "-o", "json", "--no-stacks").stdout)
    kept = b"\n".join(archive.read(Path(done["kept"])).values()).decode("utf-8", "replace")
    shared = b"\n".join(archive.read(Path(done["archive"])).values()).decode("utf-8", "replace")
    assert "14:30:01" in kept  # the log was taken
    assert "14:30:01" in shared
    assert [form for plant in secrets for form in plant.forbidden if form in shared] == []
    assert [form for plant in words for form in plant.forbidden if form in shared] == []
    assert [(plant.text, form) for plant in secrets for form in plant.forbidden if form in kept] == []


def test_old_evidence_is_redacted_anew(standins: Standins) -> None:
    """`redact` of the kept folder, and of an archive, gives an archive that can be read."""
    standins.up()
    done = json.loads(standins.run("snapshot", "-o", "json", "--no-stacks").stdout)
    for source, name in ((done["kept"], "one.tar.gz"), (done["archive"], "two.tar.gz")):
        ran = standins.run("redact", source, "--out", name)
        assert (ran.returncode, ran.stdout.strip()) == (0, name)
        assert "topology.toml" in archive.read(standins.home / name)


def test_snapshot_of_what_is_down_is_complete_and_says_so(standins: Standins) -> None:
    """Nothing answers: the products are there, and what is missing stands in them."""
    standins.up()
    standins.run("down")
    done = json.loads(standins.run("snapshot", "-o", "json").stdout)
    files = archive.read(Path(done["kept"]))
    assert b"refused" in files["prefill-0/http.toml"]
    assert json.loads(files["manifest.json"])["schema"] == "pdctl.manifest/1"


def test_hostile_archive_is_refused(standins: Standins) -> None:
    """Exit 2, and nothing is written."""
    import tarfile

    hostile = standins.home / "hostile.tar.gz"
    with tarfile.open(hostile, "w:gz") as made:
        made.addfile(tarfile.TarInfo("../../escaped"))
    ran = standins.run("redact", str(hostile))
    assert ran.returncode == 2
    assert "outside its folder" in ran.stderr
    assert sorted(path.name for path in standins.home.iterdir()) == ["hostile.tar.gz", "pd.toml"]
