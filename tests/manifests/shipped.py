"""Objects whose expressions a real API server has to have compiled before they ship: admission policies and CRDs."""

from __future__ import annotations

import hashlib
import json
import pathlib
from typing import Any

import cyaml

from tests.manifests.conftest import MANIFESTS

ACCEPTED = pathlib.Path(__file__).parent / "accepted.json"
"""Digest of each such object as a real API server took it; `RECORD_ACCEPTED=1` with `tests/e2e/test_policies.py`."""
_KINDS = ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "CustomResourceDefinition")


def objects() -> dict[str, dict[str, Any]]:
    """The policies and CRDs by kind and name."""
    found = (item for path in sorted(MANIFESTS.rglob("*.yaml")) for item in cyaml.safe_load_all(path.read_text()))
    mine = [each for each in found if isinstance(each, dict) and each.get("kind") in _KINDS]
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in mine}


def digest(item: dict[str, Any]) -> str:
    """Of what the server compiles."""
    return hashlib.sha256(json.dumps(item["spec"], sort_keys=True).encode()).hexdigest()


def expressions(spec: dict[str, Any]) -> list[str]:
    """Every CEL expression of an admission policy."""
    listed = [*spec.get("variables", ()), *spec.get("validations", ()), *spec.get("matchConditions", ())]
    found = [each["expression"] for each in listed]
    found += [each["messageExpression"] for each in listed if "messageExpression" in each]
    return found + [each["jsonPatch"]["expression"] for each in spec.get("mutations", ()) if "jsonPatch" in each]
