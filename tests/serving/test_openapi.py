"""Our own OpenAPI document, and what schemathesis makes of it against a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.serving.rig import Process, engine, running

schemathesis = pytest.importorskip("schemathesis")

CONTEXT = 96
"""Tokens; short, because an answer may fill it."""
ENDS_THE_ENGINE = "/drain"


@pytest.fixture(scope="module")
def served(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """A unified engine with the tiny model."""
    process = engine("unified", tiny_model_dir, tmp_path_factory.mktemp("openapi"), "--max-context", str(CONTEXT))
    with running(process):
        yield process


def operations(served: Process) -> list[Any]:
    """Return the operations of the document that leave the engine running."""
    schema = schemathesis.openapi.from_url(served.url + "/openapi.json")
    found = [result.ok() for result in schema.get_all_operations()]
    return [operation for operation in found if operation.path != ENDS_THE_ENGINE]


def attack(served: Process, operation: Any, mode: Any) -> int:
    """Send 40 requests of one operation; return how many were sent."""
    sent = 0

    @settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def attempt(case: Any) -> None:
        nonlocal sent
        response = case.call(base_url=served.url, timeout=60)
        sent += 1
        assert response.status_code < 500, (case.as_curl_command(), response.text)

    attempt()
    return sent


def test_the_document_names_every_route(served: Process) -> None:
    """Its paths are those that answer, with the bodies that they take."""
    document = served.get("/openapi.json")
    assert document["openapi"] == "3.1.0"
    assert {"/v1/chat/completions", "/v1/completions", "/generate", "/health", "/metrics"} <= document["paths"].keys()
    chat = document["paths"]["/v1/chat/completions"]["post"]
    reference = chat["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    fields = document["components"]["schemas"][reference.rpartition("/")[2]]
    assert fields["required"] == ["messages"]
    assert {"tools", "tool_choice", "response_format", "stream"} <= fields["properties"].keys()


@pytest.mark.parametrize("mode", [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE])
def test_no_request_is_a_server_error(served: Process, mode: Any) -> None:
    """Bodies as described, and bodies that are not: never a 5xx, and afterwards the engine is whole."""
    found = operations(served)
    with_body = [operation for operation in found if "requestBody" in operation.definition.raw]
    assert (len(found), len(with_body)) == (23, 7)
    attacked = found if mode is schemathesis.GenerationMode.POSITIVE else with_body
    sent = sum(attack(served, operation, mode) for operation in attacked)
    assert sent >= 200
    assert served.get("/health")["status"] == "ok"
    ledger = served.get("/ledger")
    assert ledger["free"] + ledger["cached"] == ledger["total"]
