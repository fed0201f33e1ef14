"""GET /openapi.json: our own routes as an OpenAPI document, made from the route table and the records behind it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from engine.api.access import Access
from engine.api.errors import ErrorBody
from engine.api.responses import json_response
from engine.api.route_info import RouteInfo

OPENAPI_VERSION = "3.1.0"
REFERENCE = "#/components/schemas/{name}"
KEY_SCHEME = "bearer"
PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
"""Of a path, as starlette writes it."""

Document = dict[str, Any]


async def openapi(request: Request) -> Response:
    """Describe the routes of this instance."""
    document: Document = request.app.state.openapi
    return json_response(document)


def describe(routes: Iterable[RouteInfo], version: str) -> Document:
    """Return the OpenAPI document of `routes`."""
    table = list(routes)
    kinds = {kind for info in table for kind in (info.body, info.answer) if kind is not None} | {ErrorBody}
    ordered = sorted(kinds, key=str)
    found, components = msgspec.json.schema_components(ordered, ref_template=REFERENCE)
    schemas = dict(zip(ordered, found, strict=True))
    paths: dict[str, Document] = {}
    for info in table:
        paths.setdefault(PARAMETER.sub(r"{\1}", info.path), {})[info.method.lower()] = _operation(info, schemas)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {"title": "pdengine", "version": version},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {KEY_SCHEME: {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(info: RouteInfo, schemas: dict[Any, Document]) -> Document:
    content = {info.media_type: {"schema": schemas[info.answer] if info.answer else {}}}
    if info.streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    named = PARAMETER.sub(r"by_\1", info.path)
    operation: Document = {
        "summary": (info.endpoint.__doc__ or "").strip().splitlines()[0],
        "operationId": f"{info.method.lower()}{named.replace('/', '_')}",
        "responses": {
            "200": {"description": "the answer", "content": content},
            "default": {
                "description": "what is wrong, and where",
                "content": {"application/json": {"schema": schemas[ErrorBody]}},
            },
        },
    }
    if names := PARAMETER.findall(info.path):
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if info.body is not None:
        body = {"application/json": {"schema": schemas[info.body]}}
        operation["requestBody"] = {"required": True, "content": body}
    if info.access is not Access.OPEN:
        # Where no key is set none is needed.
        operation["security"] = [{}, {KEY_SCHEME: []}]
    return operation
