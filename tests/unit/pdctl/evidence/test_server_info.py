"""What an engine says of its own settings: a file of its own, or among the answers that were noted by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pdctl.evidence.server_info import ServerInfo, server_info
from tests.unit.pdctl.diagnose.incident import PAIR, evidence

OURS = b'{"version": "0.1.0", "page_size": 16, "contract": {"dtype": "float32", "page_size": "16"}}'
SGLANG = '{"page_size": 1, "kv_cache_dtype": "auto", "version": "0.5.12"}'


def noted(status: int) -> str:
    """Return http.toml with the answer of an older SGLang."""
    return f'[[get]]\npath = "/get_server_info"\nstatus = {status}\ntook_ms = 5\nbody = """{SGLANG}"""\n'


def test_ours_has_a_contract() -> None:
    """A page size is text, as it is in a contract."""
    said, problems = server_info(OURS, "p/server_info.json")
    contract = {"dtype": "float32", "page_size": "16"}
    assert said == ServerInfo(file="p/server_info.json", page_size="16", contract=contract)
    assert problems == ()


def test_it_is_read_from_the_file_or_from_a_noted_answer() -> None:
    """The file comes first; an answer that failed says nothing."""
    gets = {"p__http_toml": noted(200), "d__http_toml": noted(200)}
    made = evidence(PAIR, **{"p/server_info.json": OURS.decode()}, **gets)
    prefill, decode = (item.server_info for item in made.instances)
    assert prefill is not None
    assert prefill.contract["dtype"] == "float32"
    assert decode == ServerInfo(file="d/http.toml", page_size="1", kv_cache_dtype="auto")
    assert evidence(PAIR, d__http_toml=noted(500)).instances[1].server_info is None


@given(st.binary())
def test_any_bytes_are_an_answer_or_a_problem(data: bytes) -> None:
    """Never an exception, never both."""
    said, problems = server_info(data, "p/server_info.json")
    assert (said is None) == (len(problems) == 1)
