"""A field that is missing, or null, is the zero of its type: no adapter may break on it."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import slices

from tests.conformance import adapters, runner, zero_values

VECTORS = Path(__file__).parents[1] / "vectors"
CRASHES = ("KeyError", "TypeError", "AttributeError")
FILES = sorted(
    str(path.relative_to(VECTORS))
    for folder in ("descheduler", "koord_api", "koord_qos", "koord_sched", "numa")
    for path in (VECTORS / folder).glob("*.json")
)
EACH = slices.amount(3, 1)
"""How often each case is asked with one field less."""


@pytest.fixture(scope="module", autouse=True)
def _adapters() -> None:
    adapters.load()


@pytest.mark.sliced
@pytest.mark.parametrize("name", FILES)
def test_no_adapter_breaks_on_a_field_that_is_missing_or_null(name: str, tmp_path: Path) -> None:
    rng = random.Random(name)
    cases = [case for case in json.loads((VECTORS / name).read_text()) if _is_covered(case)]
    poorer = tmp_path / "cases.json"
    poorer.write_text(json.dumps([_without_a_field(case, rng) for case in cases for _ in range(EACH)]))
    broken = [each for each in runner.run(poorer) if each.detail.startswith(tuple(f"broke: {w}" for w in CRASHES))]
    assert not broken, "\n".join(f"{each.function}: {each.source}: {each.detail}" for each in broken)


def test_a_field_is_zero_by_its_type_and_a_pointer_stays_none() -> None:
    given = zero_values.read("metric.be_usage_milli", {"elapsedSeconds": None})
    assert (given["cpuacctUsageNs"], given["lastCPUUsageNs"], given["elapsedSeconds"]) == (0, None, None)
    assert zero_values.read("TakeByTopology", {})["topology"] == []
    with pytest.raises(KeyError):
        given["noSuchFieldAnywhere"]


def _is_covered(case: Any) -> bool:
    return "input" in case and zero_values.function_of(case) in adapters.ADAPTERS


def _without_a_field(case: Any, rng: random.Random) -> Any:
    changed = copy.deepcopy(case)
    places = list(_fields(changed["input"], ""))
    if places:
        holder, name, path = rng.choice(places)
        null = rng.random() < 0.5
        if null:
            holder[name] = None
        else:
            del holder[name]
        changed["source"] = f"{case.get('source', '')} {'with null' if null else 'without'} {path}"
    return changed


def _fields(value: Any, path: str) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Every field at any depth but those that say what is asked: (its object, its name, where it is)."""
    if isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _fields(inner, f"{path}[{number}]")
    elif isinstance(value, dict):
        for name, inner in value.items():
            if f"{path}.{name}" not in (".plugin", ".validator"):
                yield value, name, f"{path}.{name}"
            yield from _fields(inner, f"{path}.{name}")
