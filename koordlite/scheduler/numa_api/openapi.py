"""The OpenAPI description of the REST interface, served with it and tested against its answers."""

from __future__ import annotations

from typing import Any

_Schema = dict[str, Any]
_TEXT: _Schema = {"type": "string"}
_NUMBER: _Schema = {"type": "integer"}
_AMOUNT: _Schema = {"type": ["integer", "null"], "description": "null: the report does not say"}
_FLAG: _Schema = {"type": "boolean"}
_STATE: _Schema = {"type": "string", "enum": ["ok", "stale", "unreadable", "no report"]}
_STATUS: _Schema = {"type": "string", "enum": ["open", "close"]}


def _ref(name: str) -> _Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(items: _Schema) -> _Schema:
    return {"type": "array", "items": items}


def _object(optional: tuple[str, ...] = (), /, **properties: _Schema) -> _Schema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _map(values: _Schema) -> _Schema:
    return {"type": "object", "additionalProperties": values}


_AMOUNTS = {
    "id": _NUMBER,
    "cpuTotalMilli": _AMOUNT,
    "cpuAvailableMilli": _AMOUNT,
    "memoryTotalBytes": _AMOUNT,
    "memoryAvailableBytes": _AMOUNT,
}
_HEAD = {"name": _TEXT, "state": _STATE, "observedAt": _TEXT, "topologyPolicy": _TEXT, "pods": _NUMBER}
_SCHEMAS: dict[str, _Schema] = {
    "ZoneAmounts": _object(**_AMOUNTS),
    "Zone": _object(
        **_AMOUNTS,
        cpus=_TEXT,
        reservedCPUs=_list(_NUMBER),
        exclusiveCPUs=_list(_object(cpu=_NUMBER, pod=_TEXT)),
        sharedCPUs=_list(_NUMBER),
        distances=_map(_NUMBER),
    ),
    "NodeSummary": _object(**_HEAD, zones=_list(_ref("ZoneAmounts")), violations=_NUMBER),
    "Node": _object(
        **_HEAD,
        scope=_TEXT,
        cpuManagerPolicy=_TEXT,
        zones=_list(_ref("Zone")),
        containers=_list(_ref("Container")),
        containersNotListed=_NUMBER,
        violations=_list(_ref("Violation")),
        problems=_list(_TEXT),
    ),
    "Container": _object(
        namespace=_TEXT,
        pod=_TEXT,
        container=_TEXT,
        source=_TEXT,
        exclusive=_FLAG,
        singleNUMA=_FLAG,
        promisedCPUs=_TEXT,
        promisedNodes=_list(_NUMBER),
        cpus=_TEXT,
        memoryNodes=_TEXT,
        cpusByNUMA=_map(_TEXT),
        memoryBytesByNUMA=_map(_NUMBER),
    ),
    "Violation": _object(
        node=_TEXT,
        namespace=_TEXT,
        pod=_TEXT,
        container=_TEXT,
        code=_TEXT,
        severity={"type": "string", "enum": ["hard", "fixable", "exposed"]},
        evidence=_map({"type": ["number", "string"]}),
    ),
    "Pod": _object(
        namespace=_TEXT,
        pod=_TEXT,
        uid=_TEXT,
        node=_TEXT,
        phase=_TEXT,
        state=_STATE,
        containers=_list(_ref("Container")),
        violations=_list(_ref("Violation")),
    ),
    "Status": _object(status=_STATUS),
    "Switched": _object(status=_STATUS, changed=_FLAG),
    "Error": _object(code=_NUMBER, msg=_TEXT, data=_object(reason=_TEXT)),
}
_MEANING = {
    "400": "bad request: the content or a parameter is wrong",
    "401": "no bearer token that is known",
    "403": "the token may not do this, or the server is read-only",
    "404": "parameters not found: there is no such thing",
    "500": "remote server busy: what is known is too old, or another server does not answer",
}


def _enveloped(schema: _Schema) -> _Schema:
    """`data` is left out where it is empty."""
    return _object(("data",), code={"const": 200}, msg={"const": "success"}, data=schema)


def _answers(schema: _Schema, *errors: str) -> dict[str, Any]:
    good = {"description": "success", "content": {"application/json": {"schema": schema}}}
    content = {"application/json": {"schema": _ref("Error")}}
    return {"200": good, **{code: {"description": _MEANING[code], "content": content} for code in errors}}


def _get(summary: str, schema: _Schema, *errors: str, **parameters: str) -> _Schema:
    given = [
        {"name": name, "in": where, "required": True, "schema": {"type": "string"}}
        for name, where in parameters.items()
    ]
    return {"get": {"summary": summary, "parameters": given, "responses": _answers(schema, "401", "403", *errors)}}


def _switch(what: str) -> _Schema:
    """A policy: whether it is open, and to open or close it."""
    found = _get(f"Whether {what}", _enveloped(_ref("Status")), "404", "500")
    return {**found, "put": _put(what)}


def _put(what: str) -> _Schema:
    content = {"application/json": {"schema": _ref("Status")}}
    answers = _answers(_enveloped(_ref("Switched")), "400", "401", "403", "404", "500")
    body = {"required": True, "content": content}
    return {"summary": f"Open or close: {what}", "requestBody": body, "responses": answers}


def document(version: str) -> dict[str, Any]:
    """OpenAPI 3.1; `version` is that of the program."""
    prometheus = {"type": "object", "description": "Prometheus's own answer, without the envelope"}
    nodes, violations = _list(_ref("NodeSummary")), _list(_ref("Violation"))
    paths = {
        "/numaaware": _switch("Volcano has its plugin numa-aware"),
        "/numadistance": _switch("the extender goes by the distance of NUMA nodes"),
        "/podaffinity": _switch("agents may bring pods that talk to each other onto one NUMA node"),
        "/numa/nodes": _get("Every node by NUMA node", _enveloped(nodes), "500"),
        "/numa/nodes/{node}": _get("One node", _enveloped(_ref("Node")), "404", "500", node="path"),
        "/numa/pods/{namespace}/{pod}": _get(
            "One pod", _enveloped(_ref("Pod")), "404", "500", namespace="path", pod="path"
        ),
        "/numa/violations": _get("Promises that do not hold", _enveloped(violations), "500"),
        "/query": _get("An instant query to Prometheus", prometheus, "400", "404", "500", query="query"),
        "/query_range": _get("A range query to Prometheus", prometheus, "400", "404", "500", query="query"),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "NUMA nodes of the cluster", "version": version},
        "servers": [{"url": "/rest/scheduling/v1"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }
