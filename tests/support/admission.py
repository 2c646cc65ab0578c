"""What a ValidatingAdmissionPolicy says, evaluated by cel-python as a stand-in for the API server."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import cyaml
import pytest

Object = dict[str, Any]


def policies(path: pathlib.Path) -> dict[str, Object]:
    """The specs of the policies in a file, by name; each is bound by a binding that denies."""
    documents = list(cyaml.safe_load_all(path.read_text()))
    found = {each["metadata"]["name"]: each["spec"] for each in documents if each["kind"].endswith("Policy")}
    bound = {each["spec"]["policyName"]: each["spec"] for each in documents if each["kind"].endswith("Binding")}
    assert bound.keys() == found.keys()
    assert all("Deny" in each["validationActions"] for each in bound.values())
    assert all(each["failurePolicy"] == "Fail" for each in found.values())
    return found


def refusals(spec: Object, *, old: Object, new: Object, user: str) -> list[str]:
    """The messages of the validations that refuse an update; none: it is admitted."""
    celpy = pytest.importorskip("celpy", reason="no CEL interpreter is installed (cel-python)")
    known: Object = {"request": {"userInfo": {"username": user}}, "object": new, "oldObject": old}
    environment = celpy.Environment()

    def evaluated(expression: str) -> Any:
        program = environment.program(environment.compile(expression))
        return program.evaluate({name: celpy.json_to_cel(value) for name, value in known.items()})

    if not all(evaluated(each["expression"]) for each in spec["matchConditions"]):
        return []
    known["variables"] = {each["name"]: _plain(evaluated(each["expression"])) for each in spec["variables"]}
    return [each["message"] for each in spec["validations"] if not evaluated(each["expression"])]


def _plain(value: Any) -> Any:
    """JSON knows no subclass of int that is a truth."""
    return bool(value) if type(value).__name__ == "BoolType" else json.loads(json.dumps(value))
