"""Fakes of engines and routers as `attach` meets them: answers to GETs, recorded from the real ones and shortened."""

from __future__ import annotations

from tests.fakes.http_server import FakeServer, Reply


def sglang(role: str, model: str = "smol", version: str = "0.5.23") -> FakeServer:
    """A worker of SGLang."""
    info = {
        "disaggregation_mode": role,
        "disaggregation_bootstrap_port": 8998,
        "disaggregation_transfer_backend": "nixl",
        "served_model_name": model,
        "tp_size": 2,
        "version": version,
        "internal_states": [{}],
    }
    models = {"object": "list", "data": [{"id": model, "object": "model"}]}
    return FakeServer({"/server_info": Reply(info), "/v1/models": Reply(models)})


def vllm(model: str = "smol") -> FakeServer:
    """A server of vLLM, which tells no role."""
    metrics = f'vllm:num_requests_running{{engine="0",model_name="{model}"}} 0.0\n'
    models = {"object": "list", "data": [{"id": model, "object": "model"}]}
    return FakeServer(
        {
            "/version": Reply({"version": "0.33.0"}),
            "/metrics": Reply(metrics.encode()),
            "/v1/models": Reply(models),
        }
    )


def smg(workers: list[dict[str, object]], model: str = "smol") -> FakeServer:
    """The router smg with the workers it lists."""
    body = b'{"error":{"type":"invalid_request_error","code":"unknown_url"}}'
    listed = [worker | {"runtime_type": "sglang", "model_id": model} for worker in workers]
    models = {"object": "list", "data": [{"id": model, "object": "model"}]}
    return FakeServer(
        {
            "/workers": Reply({"workers": listed, "total": len(listed), "stats": {"prefill_count": 1}}),
            "/version": Reply(body, 404),
            "/v1/models": Reply(models),
        }
    )


def dynamo_frontend(model: str = "smol") -> FakeServer:
    """The frontend of Dynamo, which lists no workers."""
    metrics = f'dynamo_frontend_model_ready{{model="{model}"}} 1\n'
    return FakeServer({"/metrics": Reply(metrics.encode())})


def dynamo_worker(component: str, model: str = "smol") -> FakeServer:
    """A worker of Dynamo, which tells its component."""
    metrics = (
        f'dynamo_component_requests_total{{dynamo_component="{component}",dynamo_endpoint="generate"}} 5\n'
        f'vllm:num_requests_running{{engine="0",model_name="{model}"}} 0.0\n'
    )
    return FakeServer({"/metrics": Reply(metrics.encode())})
