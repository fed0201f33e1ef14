"""pd.toml read and written."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.deployment import files
from pdctl.deployment.model import Deployment, Instance, Role
from pdctl.errors import PdctlError, UsageError

GOOD = """\
schema = "pdctl.deployment/1"
name = "night"
model = "smollm2"

[[instance]]
name = "prefill-0"
role = "prefill"
dialect = "sglang"
url = "http://192.0.2.10:30000/"
tp = 8
bootstrap_port = 8998
api_key_file = "keys/prefill"

[[instance]]
name = "decode-0"
role = "decode"
dialect = "pdctl"
url = "http://127.0.0.1:30002"
manager = "shim"
start = ["bin/engine", "--role", "decode"]
env = { UCX_TLS = "tcp" }
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "pd.toml"
    path.write_text(text)
    return path


def test_every_key_is_read(tmp_path: Path) -> None:
    """Values arrive typed; a trailing slash of a url is dropped."""
    deployment = files.load(write(tmp_path, GOOD))
    assert deployment == Deployment(
        name="night",
        model="smollm2",
        instances=(
            Instance(
                name="prefill-0",
                role=Role.PREFILL,
                dialect="sglang",
                url="http://192.0.2.10:30000",
                tp=8,
                bootstrap_port=8998,
                api_key_file=f"{tmp_path}/keys/prefill",
            ),
            Instance(
                name="decode-0",
                role=Role.DECODE,
                dialect="pdctl",
                url="http://127.0.0.1:30002",
                manager="shim",
                start=(f"{tmp_path}/bin/engine", "--role", "decode"),
                env={"UCX_TLS": "tcp"},
            ),
        ),
    )


def test_relative_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pdctl is called does not matter."""
    write(tmp_path, GOOD)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    deployment = files.load(Path("../pd.toml"))
    assert deployment.instances[0].api_key_file == f"{tmp_path}/keys/prefill"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('role = "decode"', 'role = "decoder"', "pd.toml:16: role = 'decoder' is wrong"),
        ("tp = 8", 'tp = "8"', "pd.toml:10: tp = '8' is wrong: Expected `int | null`, got `str`"),
        ("tp = 8", "tpp = 8", "pd.toml:10: unknown key `tpp`"),
        ('model = "smollm2"', 'modle = "smollm2"', "pd.toml:3: unknown key `modle`"),
        ("[[instance]]", "[[instances]]", "pd.toml:5: unknown key `instances`"),
        ('dialect = "pdctl"', 'dialect = "vlm"', "pd.toml:17: dialect = 'vlm' must be one of"),
        ('manager = "shim"', 'manager = "shin"', "pd.toml:19: manager = 'shin' must be one of shim, systemd, none"),
        ('manager = "shim"', 'manager = "systemd"', "unit = None must be set where manager is systemd"),
        ('manager = "shim"', 'host = "remote"', "pd.toml:19: host = 'remote' must be local, ssh:NAME"),
        ('manager = "shim"', 'host = "ssh:-oX"', "pd.toml:19: host = 'ssh:-oX' must be local, ssh:NAME"),
        (
            'manager = "shim"',
            'manager = "shim"\nhost = "ssh:b"',
            "pd.toml:19: manager = 'shim' must be systemd or none on",
        ),
        ('name = "decode-0"', 'name = "prefill-0"', "pd.toml:15: name = 'prefill-0' must be used once"),
        ('name = "decode-0"', 'name = "../escape"', "pd.toml:15: name = '../escape' must be letters"),
        ('name = "decode-0"', "", "pd.toml:14: [[instance]] number 2 has no `name`"),
        ('name = "night"', 'name = "a/b"', "pd.toml:2: name = 'a/b' must be"),
        ("127.0.0.1:30002", "192.0.2.10:30000", "must be used once"),
        ("http://127.0.0.1:30002", "127.0.0.1:30002", "pd.toml:18: url = '127.0.0.1:30002' must be http://HOST:PORT"),
        (":30002", ":99999", "pd.toml:18: url = 'http://127.0.0.1:99999' must be"),
        ('manager = "shim"', "tp = 0", "pd.toml:19: tp = 0 must be at least 1"),
        ("8998", "89980", "pd.toml:11: bootstrap_port = 89980 must be between 1 and 65535"),
        ("deployment/1", "deployment/9", "schema = 'pdctl.deployment/9' is not known"),
        ('{ UCX_TLS = "tcp" }', "{ UCX_TLS = 1 }", "pd.toml:21: env = {'UCX_TLS': 1} is wrong"),
    ],
)
def test_wrong_value_is_named_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    """File, line, key and value stand in the message."""
    assert old in GOOD
    with pytest.raises(UsageError) as caught:
        files.load(write(tmp_path, GOOD.replace(old, new, 1)))
    assert message in caught.value.message
    assert "pd.toml" in caught.value.message


@pytest.mark.parametrize("length", range(1, len(GOOD), 7))
def test_half_a_file_never_passes_for_a_whole_one(tmp_path: Path, length: int) -> None:
    """A file cut anywhere is a UsageError, or (cut between keys) lacks only what was cut."""
    try:
        deployment = files.load(write(tmp_path, GOOD[:length]))
    except UsageError as error:
        assert "pd.toml" in error.message
    else:
        whole = files.load(write(tmp_path, GOOD))
        assert [i.name for i in deployment.instances] == [i.name for i in whole.instances][: len(deployment.instances)]


def test_unfinished_toml_names_the_place(tmp_path: Path) -> None:
    """The parser's line and column are passed on."""
    with pytest.raises(UsageError, match=r"pd\.toml is not complete TOML.*line 3"):
        files.load(write(tmp_path, 'name = "a"\nmodel = "b"\n[[instance\n'))


@pytest.mark.parametrize("instance", ["5", '"x"', "[1]", "{}", "[[]]"])
def test_instances_of_another_shape(tmp_path: Path, instance: str) -> None:
    """Whatever `instance` is, the message names the key."""
    with pytest.raises(UsageError, match="instance"):
        files.load(write(tmp_path, f'name = "a"\nmodel = "b"\ninstance = {instance}\n'))


@pytest.mark.parametrize("text", ["", 'name = "a"\nmodel = "b"\n', 'name = "a"\nmodel = "b"\ninstance = []\n'])
def test_file_without_instances(tmp_path: Path, text: str) -> None:
    """Nothing to do is an error, not an empty success."""
    with pytest.raises(UsageError, match=r"pd\.toml"):
        files.load(write(tmp_path, text))


def test_absent_file(tmp_path: Path) -> None:
    """The message names the file and a way out."""
    with pytest.raises(UsageError, match="cannot read the deployment file"):
        files.load(tmp_path / "pd.toml")


names = st.from_regex(files.NAME, fullmatch=True)
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
instances = st.builds(
    Instance,
    name=names,
    role=st.sampled_from(Role),
    dialect=st.sampled_from(files.DIALECTS),
    url=st.integers(1, 65535).map(lambda port: f"http://192.0.2.1:{port}"),
    manager=st.sampled_from(("shim", "none")),
    bootstrap_port=st.none() | st.integers(1, 65535),
    model=st.none() | texts,
    version=st.none() | texts,
    tp=st.none() | st.integers(1, 64),
    hosts=st.lists(texts, max_size=3).map(tuple),
    start=st.none() | st.lists(texts.filter(lambda word: "/" not in word), min_size=1, max_size=4).map(tuple),
    env=st.dictionaries(texts, texts, max_size=3),
)


@given(
    deployment=st.builds(
        Deployment,
        name=names,
        model=texts,
        instances=st.lists(instances, min_size=1, max_size=4, unique_by=(lambda i: i.name, lambda i: i.url)).map(tuple),
    )
)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, deployment: Deployment) -> None:
    """For any texts, quotes and control characters included."""
    path = tmp_path_factory.mktemp("files") / "pd.toml"
    files.save(deployment, path)
    assert files.load(path) == deployment


def test_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails half-way changes nothing and leaves no draft."""
    path = write(tmp_path, "old")

    def no_space(self: Path, text: str, encoding: str) -> int:
        with self.open("w") as file:
            file.write(text[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", no_space)
    with pytest.raises(PdctlError, match="No space left on device"):
        files.write_atomically(path, "new text that does not fit")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
