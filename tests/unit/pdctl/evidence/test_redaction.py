"""What is shared says nothing of secrets, clients, names and addresses, and finds the same."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from pdctl.diagnose.diagnosis import diagnose
from pdctl.diagnose.report import Report
from pdctl.evidence.archive import read
from pdctl.evidence.credentials import Credentials
from pdctl.evidence.directory import evidence_of
from pdctl.evidence.redaction import NEVER_SHARED, Redaction
from tests.unit.pdctl.evidence.planted import credential, words_of_a_client

CORPUS = Path(__file__).parents[3] / "corpus" / "incidents"
TOPOLOGY = b"""schema = "pdctl.incident/1"
captured_at = 2026-06-19T14:31:05Z
name = "acme-production"
[[instance]]
name = "acme-prefill-paris"
role = "prefill"
dialect = "sglang"
url = "http://10.20.30.40:30000"
model = "acme/llama-secret-tune"
host = "ssh:gpu17.acme.internal"
"""
LINE = "[2026-06-19 14:30:01 TP0] {}"


def shared(files: dict[str, bytes], **more: tuple[str, ...]) -> dict[str, bytes]:
    """Return the redacted files."""
    return Redaction(files, b"0123456789abcdef", **more).files()


def log_of(*lines: str) -> str:
    """Return the shared log of an instance that printed these lines."""
    text = "\n".join(LINE.format(line) for line in lines)
    files = shared({"topology.toml": TOPOLOGY, "acme-prefill-paris/log.txt": text.encode()})
    return files["prefill-x1/log.txt"].decode()


@pytest.mark.parametrize("seed", range(40))
def test_no_planted_credential_is_left(seed: int) -> None:
    """Whatever secret, place and escaping chance draws: neither exact nor shared text has it."""
    chance = random.Random(seed)
    plants = [credential(chance) for _ in range(25)]
    exact = Credentials().without("\n".join(plant.text for plant in plants).encode()).decode()
    clean = log_of(*(plant.text for plant in plants))
    left = [(plant.text, form) for plant in plants for form in plant.forbidden if form in exact or form in clean]
    assert left == []


@pytest.mark.parametrize("seed", range(40))
def test_no_word_of_a_client_is_left(seed: int) -> None:
    """Prompts, answers and token ids, also over two lines and escaped twice."""
    chance = random.Random(seed)
    plants = [words_of_a_client(chance) for _ in range(25)]
    clean = log_of(*(plant.text for plant in plants))
    assert [(plant.text, form) for plant in plants for form in plant.forbidden if form in clean] == []


def test_colours_hide_nothing() -> None:
    """Rust's loggers colour field names into files: path, host, name and prompt behind a code go all the same."""
    codes = "\x1b[3mmodel\x1b[0m\x1b[2m=\x1b[0m/srv/acme/tune \x1b[2macme-prefill-paris \x1b[0m10.20.30.40 "
    clean = log_of(codes + "\x1b[3mprompt\x1b[0m\x1b[2m=\x1b[0m'tell me a secret of yours'")
    assert not [word for word in ("acme", "10.20.30.40", "secret") if word in clean]
    assert "prompt='<27 chars>'" in clean


def test_the_path_of_a_file_url_is_a_path() -> None:
    """Of other URLs the host is what tells; `/v1/models` stays."""
    clean = log_of("init_method=file:///srv/acme/store_1 GET http://127.0.0.1:8000/v1/models")
    assert "acme" not in clean
    assert clean.endswith("GET http://127.0.0.1:8000/v1/models")


def test_length_of_a_prompt_is_kept() -> None:
    """How long it was matters; what it said does not: `'abcdefg'` is nine characters with its quotes."""
    assert log_of("Receive: text='abcdefg', rid='r'") == LINE.format("Receive: text='<9 chars>', rid='r'")


def test_known_value_goes_in_every_encoding() -> None:
    """A key that pdctl itself sends: also in base64 at each alignment, URL- and JSON-escaped."""
    key = 'k3y/with+odd"chars=and_more'
    import base64
    import json
    from urllib.parse import quote

    forms = [key, json.dumps(key)[1:-1], quote(key, safe="")]
    forms += [base64.b64encode(b"x" * shift + key.encode() + b"tail").decode() for shift in range(3)]
    core = [base64.b64encode(key.encode()).decode()[:20], *forms[:3]]
    clean = Credentials([key]).without("\n".join(forms).encode()).decode()
    assert clean.count("***") == 6
    assert [form for form in core if form in clean] == []


def test_names_of_the_deployment_are_gone_and_stay_equal() -> None:
    """Instance, deployment, model and host names, in the topology and wherever they are mentioned."""
    files = shared({
        "topology.toml": TOPOLOGY,
        "acme-prefill-paris/log.txt": b"acme-prefill-paris serves acme/llama-secret-tune on gpu17.acme.internal\n"
        b"mail ops@acme.example from /home/jdoe/run to acme-prefill-paris",
        "acme-prefill-paris/metrics.txt": b'sglang:x{model_name="acme/llama-secret-tune",tp_rank="0"} 3.0\n',
    })  # fmt: skip
    whole = b"\n".join([*files.values(), *(name.encode() for name in files)]).decode()
    assert re.findall(r"acme|paris|llama|gpu17|jdoe", whole) == []
    assert whole.count("prefill-x1 ") == 1
    assert 'model_name="model-x1",tp_rank="0"} 3.0' in whole


def test_addresses_keep_class_network_and_equality() -> None:
    """Loopback stays, 10/8 stays private, one network stays one, two hosts stay two."""
    text = log_of("10.1.2.3 10.1.2.4 10.1.9.4 127.0.0.1 10.1.2.3 192.168.7.8 8.8.4.4")
    one, two, other, loopback, again, private, public = re.findall(r"\d+\.\d+\.\d+\.\d+", text)
    assert "10.1.2.3" not in text
    assert one == again != two
    assert one.split(".")[:3] == two.split(".")[:3] != other.split(".")[:3]
    assert one.split(".")[:2] == other.split(".")[:2]
    assert (one.split(".")[0], loopback, private.split(".")[:2]) == ("10", "127.0.0.1", ["192", "168"])
    assert public != "8.8.4.4"


def test_what_is_joined_by_underscores_goes_all_the_same() -> None:
    """vLLM's router names prefill and decode in the id of each request; a hexadecimal tail of its own stays."""
    request = "chatcmpl-___prefill_addr_{}:8000___decode_addr_{}:8001_9f00c1"
    addresses = log_of(request.format("10.20.30.40", "10.20.30.41") + " on 10.20.30.40")
    one, two, again = re.findall(r"10\.\d+\.\d+\.\d+", addresses)
    assert "10.20.30.4" not in addresses
    assert one == again != two
    assert f"_prefill_addr_{one}:8000___decode_addr_{two}:8001_9f00c1" in addresses
    hosts = log_of(request.format("gpu1.acme.internal", "acme-prefill-paris") + " kv_10.1.2.3_10.1.2.4_done")
    assert not re.search(r"acme|paris|gpu1\b|10\.1\.2\.", hosts)
    assert "_prefill_addr_host-x2:8000___decode_addr_prefill-x1:8001_9f00c1" in hosts
    assert "acme" not in log_of("GET http://acme_gpu_7:8000/v1/models of kv_2001:db8:0:7::5_acme-prefill-paris_2")
    assert "2001:db8:0:7::5" not in log_of("kv_2001:db8:0:7::5_2")


@pytest.mark.parametrize("before", [r"'lost\n", r"'lost\t", "peer=http%3A%2F%2F", "?q=%20"])
@pytest.mark.parametrize("name", [
    "10.20.30.40", "2001:db8:0:7::5", "gpu9.acme.internal", "acme-prefill-paris", "acme/llama-secret-tune",
])  # fmt: skip
def test_an_escape_before_a_name_is_no_part_of_it(before: str, name: str) -> None:
    """Texts that were quoted by Python or for a URL."""
    text = log_of(f"{before}{name} now")
    assert name not in text
    assert before in text


def test_a_name_that_is_an_engines_word_breaks_no_key() -> None:
    """Who serves under the name `model` still has a `served_model_name`, and a user called vllm no words of vLLM."""
    topology = b"""name = "default"
[[instance]]
name = "one"
role = "prefill"
model = "model"
"""
    files = shared({
        "topology.toml": topology,
        "one/loads.json": b'{"served_model_name":"model","num_running_reqs":3}',
        "one/log.txt": b"vllm_engine default_loop",
    }, names=("vllm",))  # fmt: skip
    assert files["prefill-x1/loads.json"] == b'{"served_model_name":"model-x1","num_running_reqs":3}'
    assert files["prefill-x1/log.txt"] == b"vllm_engine default_loop"


def test_unknown_keys_keep_their_name_and_lose_their_value() -> None:
    """Structured data by the positive list, in TOML, JSON and JSON inside TOML."""
    http = b'[[get]]\npath = "/server_info"\nstatus = 200\nfoo = "leak1"\nbody = \'{"status":"ok","bar":"leak2"}\'\n'
    files = shared({"topology.toml": TOPOLOGY, "p/http.toml": http, "p/rooms.json": b'{"now": 1, "baz": ["leak3"]}'})
    assert b"leak" not in b"".join(files.values())
    assert files["p/http.toml"] == (
        b'[[get]]\npath = "/server_info"\nstatus = 200\nfoo = ""\nbody = "{\\"status\\":\\"ok\\",\\"bar\\":\\"\\"}"\n'
    )
    assert files["p/rooms.json"] == b'{"now":1,"baz":""}'


def test_notes_and_unreadable_files_are_not_shared() -> None:
    """Free text never; a broken file is emptied, not passed on."""
    files = shared(
        {"topology.toml": TOPOLOGY, "notes.md": b"call Jane", "p/gpu.toml": b"= Jane", "p/loads.json": b"{Jane"}
    )
    assert b"Jane" not in b"".join(files.values())
    assert "notes.md" not in files


def findings(files: dict[str, bytes], names: dict[str, str]) -> object:
    """Return verdict, causes, symptoms and what was ruled out, instances by their names afterwards."""
    folders = {name.partition("/")[0] for name in files if "/" in name}
    report: Report = diagnose(evidence_of(files, folders), "d")

    def named(instance: str) -> str:
        return names.get(instance, instance)

    causes = [(c.code, c.confidence, c.causal_role, named(c.subject.instance)) for c in report.firm]
    symptoms = sorted((row.symptom, named(row.instance)) for row in report.symptoms)
    return report.verdict, causes, symptoms, sorted(item.code for item in report.ruled_out)


@pytest.mark.parametrize("incident", sorted(path.name for path in CORPUS.iterdir() if path.is_dir()))
def test_findings_are_the_same_after_redaction(incident: str) -> None:
    """On every incident of the corpus, after mapping names."""
    files = {name: data for name, data in read(CORPUS / incident).items() if name not in NEVER_SHARED}
    redaction = Redaction(files, b"0123456789abcdef")
    clean = redaction.files()
    assert findings(clean, {}) == findings(files, dict(redaction.mapping))
