"""The OpenAPI description against the answers: every path is described, and every answer is as described."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

import koordlite
from koordlite.scheduler.numa_api import service
from koordlite.scheduler.numa_api.service import NumaService
from tests.scheduler import numa_scene

V1 = "/rest/scheduling/v1"


@pytest.fixture
def api() -> NumaService:
    scene = numa_scene.scene()
    return NumaService(scene.cluster, wall=lambda: scene.clock.wall, not_ready=lambda: "")


@pytest.fixture
def described(api: NumaService) -> Any:
    """As it is served."""
    return json.loads(api.answer(f"{V1}/openapi.json", {}, "").body)


def check(described: Any, answer: Any, path: str, verb: str = "get") -> None:
    declared = described["paths"][path][verb]["responses"][str(answer.status)]
    schema = declared["content"]["application/json"]["schema"]
    whole = {**schema, "components": described["components"]}
    jsonschema.Draft202012Validator(whole).validate(json.loads(answer.body))


ASKED = {
    "/numa/nodes": ["/numa/nodes"],
    "/numa/nodes/{node}": [f"/numa/nodes/{name}" for name in ("good", "old", "broken", "bare", "none")],
    "/numa/pods/{namespace}/{pod}": ["/numa/pods/shop/astray", "/numa/pods/shop/web", "/numa/pods/shop/none"],
    "/numa/nights": ["/numa/nights"],
    "/numa/violations": ["/numa/violations"],
    "/query": ["/query"],
    "/query_range": ["/query_range"],
}


@pytest.mark.parametrize(("path", "question"), [(path, question) for path, all_ in ASKED.items() for question in all_])
def test_every_answer_is_as_it_is_described(api: NumaService, described: Any, path: str, question: str):
    check(described, api.answer(V1 + question, {}, ""), path)


def test_an_answer_that_is_too_old_is_described(described: Any):
    api = NumaService(numa_scene.scene().cluster, wall=lambda: 0.0, not_ready=lambda: "too old")
    for path in ("/numa/nodes", "/numa/violations"):
        check(described, api.answer(V1 + path, {}, ""), path)


def test_every_path_is_described_and_every_schema_is_used(described: Any):
    assert set(described["paths"]) == {*ASKED, *(f"/{name}" for name in service.POLICIES)}
    text = json.dumps(described)
    assert all(f'"#/components/schemas/{name}"' in text for name in described["components"]["schemas"])
    assert described == json.loads(service.openapi())
    assert described["info"]["version"] == koordlite.__version__


def test_a_description_that_is_wrong_is_noticed(api: NumaService, described: Any):
    del described["components"]["schemas"]["NodeSummary"]["properties"]["pods"]
    with pytest.raises(jsonschema.ValidationError):
        check(described, api.answer(f"{V1}/numa/nodes", {}, ""), "/numa/nodes")


def test_switched_answers_are_described(described: Any):
    schemas = described["components"]["schemas"]
    jsonschema.validate({"status": "open", "changed": False}, schemas["Switched"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"status": "on"}, schemas["Status"])
