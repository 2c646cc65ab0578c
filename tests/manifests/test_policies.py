"""Admission policies and CRDs are what a real API server has compiled, with functions that it has."""

from __future__ import annotations

import json

import cyaml
import pytest

from tests.manifests import shipped
from tests.manifests.conftest import MANIFESTS, named, overlay

OBJECTS = shipped.objects()
ACCEPTED = json.loads(shipped.ACCEPTED.read_text())
POLICIES = {name: each["spec"] for name, each in OBJECTS.items() if name.partition("/")[0].endswith("Policy")}


@pytest.mark.parametrize("name", OBJECTS)
def test_a_real_api_server_has_accepted_it_as_it_is(name: str) -> None:
    words = "after a change run tests/e2e/test_policies.py with RECORD_ACCEPTED=1 (CONTRIBUTING.md)"
    assert ACCEPTED.get(name) == shipped.digest(OBJECTS[name]), words


def test_nothing_is_recorded_that_is_gone() -> None:
    assert ACCEPTED.keys() == OBJECTS.keys()


@pytest.mark.parametrize("name", POLICIES)
def test_its_functions_are_those_of_the_api_server(name: str) -> None:
    functions = pytest.importorskip("cel_functions", reason="no CEL interpreter is installed (cel-python)")
    found = shipped.expressions(POLICIES[name])
    assert found
    for expression in found:
        functions.check(expression)


def test_a_method_that_is_a_function_there_is_refused() -> None:
    functions = pytest.importorskip("cel_functions", reason="no CEL interpreter is installed (cel-python)")
    functions.check('sign(quantity("1")) > 0')
    with pytest.raises(functions.UnknownFunctionError, match=r"method sign\(\)"):
        functions.check('quantity("1").sign() > 0')
    with pytest.raises(functions.UnknownFunctionError, match=r"method greatest\(\)"):
        functions.check("math.greatest(1, 2) == 2")


def test_no_policy_refuses_for_want_of_its_parameters() -> None:
    """The API server looks for them before it asks the match conditions: every pod of the cluster would be refused."""
    documents = (each for path in MANIFESTS.rglob("*.yaml") for each in cyaml.safe_load_all(path.read_text()))
    found = [each for each in documents if isinstance(each, dict) and each.get("kind", "").endswith("PolicyBinding")]
    assert found
    for each in found:
        reference = each["spec"].get("paramRef", {"parameterNotFoundAction": "Allow"})
        assert reference["parameterNotFoundAction"] == "Allow", each["metadata"]["name"]


@pytest.mark.parametrize(
    ("component", "file"), [("tenant-guard", "policies.yaml"), ("reservation-controller", "guard.yaml")]
)
def test_the_patch_that_a_head_comment_shows_changes_its_variable_and_nothing_else(component: str, file: str) -> None:
    lines = (MANIFESTS / "components" / component / file).read_text().splitlines()
    patch = "\n".join(line[4:] for line in lines if line.startswith("#   "))
    (entry,) = cyaml.safe_load(patch)["patches"]
    test, replacement = cyaml.safe_load(entry["patch"])
    plain, changed = (
        named(list(overlay("namespace", component, **more)), *entry["target"].values())
        for more in ({}, {"patches": [entry]})
    )
    index = int(test["path"].split("/")[3])
    variable = plain["spec"]["variables"][index]
    assert (variable["name"], test["op"]) == (test["value"], "test")
    assert variable["expression"] != replacement["value"]
    variable["expression"] = replacement["value"]
    assert changed == plain
