"""Health, metrics, loads, rooms, ledger, and what is served."""

from __future__ import annotations

import os
import signal

from prometheus_client.parser import text_string_to_metric_families

from engine.observe.metrics import CATALOGUE
from tests.engine.api.instance import WAIT_S, Instance
from tests.waiting import eventually


def families(instance: Instance) -> dict[str, list[tuple[dict[str, str], float]]]:
    text = instance.http.get("/metrics").text
    return {
        sample.name: [(s.labels, s.value) for s in family.samples if s.name == sample.name]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def requests_counted(instance: Instance) -> dict[tuple[str, str], float]:
    counts = families(instance)["pdengine_http_requests_total"]
    return {(labels["path"], labels["status"]): value for labels, value in counts}


def test_health_says_what_it_is(unified: Instance) -> None:
    """A healthy instance answers 200 and names itself."""
    body = unified.http.get("/health").json()
    assert (body["status"], body["role"], body["problems"]) == ("ok", "unified", [])
    assert body["threads"] == {"loop": True}


def test_stopped_scheduler_is_unfit_but_alive(unified: Instance) -> None:
    """A scheduler that does not answer makes /health 503; /health/live and /metrics go on."""
    pid = unified.http.get("/server_info").json()["scheduler_pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        response = unified.http.get("/health")
        assert (response.status_code, response.json()["status"]) == (503, "unfit")
        assert "did not answer" in response.json()["problems"][0]
        assert unified.http.get("/health/live").status_code == 200
        assert families(unified)["pdengine_scheduler_observed"] == [({}, 0.0)]
        assert unified.http.get("/v1/loads").status_code == 503
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: unified.health() == 200, WAIT_S)


def test_metrics_have_both_processes(unified: Instance) -> None:
    """The scheduler's samples and the API's own are in one answer, with their types."""
    found = families(unified)
    assert found["pdengine_queue_length"] == [({"queue": "waiting"}, 3.0)]
    assert found["pdengine_steps_total"] == [({"kind": "decode"}, 7.0)]
    assert found["pdengine_scheduler_observed"] == [({}, 1.0)]
    text = unified.http.get("/metrics").text
    assert "# TYPE pdengine_steps_total counter" in text
    assert "# TYPE pdengine_queue_length gauge" in text


def test_unknown_sample_is_not_lost(unified: Instance) -> None:
    """A name that the catalogue lacks is exposed as untyped."""
    assert families(unified)["pdengine_new_in_this_version"] == [({}, 1.0)]


def test_requests_are_counted_by_path_and_status(unified: Instance) -> None:
    """Answered requests are counted; unknown paths share one label."""
    before = requests_counted(unified)
    unified.post("/v1/completions", {"prompt": "a"})
    unified.http.get("/no/such/path")
    after = requests_counted(unified)
    for key in (("/v1/completions", "200"), ("other", "404")):
        assert after[key] == before.get(key, 0) + 1


def test_idle_instance_has_nothing_in_flight(unified: Instance) -> None:
    """Gauges of the API process return to zero, but for the scrape itself."""
    found = families(unified)
    assert found["pdengine_sequences_in_flight"] == [({}, 0.0)]
    assert [value for _, value in found["pdengine_http_generations"]] == [0.0, 0.0]
    assert found["pdengine_http_in_flight"] == [({}, 1.0)]


def test_catalogue_is_well_formed() -> None:
    """Names carry the prefix, counters and only they end in _total, every metric has a help text."""
    for name, info in CATALOGUE.items():
        assert name.startswith("pdengine_")
        assert name.endswith("_total") == (info.kind == "counter")
        assert info.help.endswith(".")


def test_models_name_the_served_one(unified: Instance) -> None:
    """/v1/models has the name that clients write, and what fits."""
    card = unified.http.get("/v1/models").json()["data"][0]
    assert card["max_model_len"] == 2048
    assert card["id"] == unified.http.get("/model_info").json()["served_model_name"]


def test_a_model_is_found_by_its_name(unified: Instance) -> None:
    """As OpenAI's client retrieves it; another name is a 404."""
    served = unified.http.get("/v1/models").json()["data"][0]
    assert unified.http.get(f"/v1/models/{served['id']}").json() == served
    other = unified.http.get("/v1/models/org/other")
    assert (other.status_code, other.json()["error"]["code"]) == (404, "model_not_found")


def test_server_info_has_sglangs_fields_and_no_keys(decode: Instance) -> None:
    """Role and peers are there under SGLang's names too; secrets are not."""
    info = decode.http.get("/server_info").json()
    assert info == decode.http.get("/get_server_info").json()
    assert (info["disaggregation_mode"], info["peers"]) == ("decode", ["127.0.0.1:8998"])
    assert not [key for key in info if "key" in key]


def test_loads_and_ledger_are_the_schedulers(unified: Instance) -> None:
    """They are passed on as the scheduler's records."""
    assert unified.http.get("/v1/loads").json()["queues"] == {"waiting": 0}
    assert unified.http.get("/ledger").json()["balanced"] is True


def test_tokenize_gives_the_ids_that_generate_uses(unified: Instance) -> None:
    """The ids of /tokenize are those that the scheduler gets for the same text."""
    ids = unified.post("/tokenize", {"text": "hello the"}).json()
    unified.post("/generate", {"text": "hello the"}, "tok-1").raise_for_status()
    assert [message.prompt_ids for message in unified.sent() if message.request_id == "tok-1"] == [ids["tokens"]]
    assert ids["count"] == len(ids["tokens"])
    assert unified.post("/detokenize", {"tokens": ids["tokens"]}).json()["text"] == "hello the"
