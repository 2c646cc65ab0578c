"""How a pod wants its CPUs."""

from __future__ import annotations

import pytest

from koordlite.model import keys
from koordlite.model.errors import Problem
from koordlite.model.pod import pod_reader
from koordlite.model.pod.values import ResourceSpec
from koordlite.model.wire import objects


def read(text: str | None) -> tuple[ResourceSpec, list[Problem]]:
    problems: list[Problem] = []
    return pod_reader.parse_resource_spec(text, "pod/a/b", problems), problems


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        pytest.param(None, ResourceSpec(), id="no annotation"),
        pytest.param("", ResourceSpec(), id="an empty one"),
        pytest.param("{}", ResourceSpec(), id="no preference"),
        pytest.param("null", ResourceSpec(), id="null"),
        pytest.param(
            '{"requiredCPUBindPolicy":"FullPCPUs"}',
            ResourceSpec(required_cpu_bind_policy="FullPCPUs"),
            id="required",
        ),
        pytest.param(
            '{"PREFERREDCPUBINDPOLICY":"SpreadByPCPUs","preferredCPUExclusivePolicy":"NUMANodeLevel","later":1}',
            ResourceSpec(preferred_cpu_bind_policy="SpreadByPCPUs", preferred_cpu_exclusive_policy="NUMANodeLevel"),
            id="as Go reads it",
        ),
    ],
)
def test_preferences(text: str | None, spec: ResourceSpec) -> None:
    assert read(text) == (spec, [])


@pytest.mark.parametrize("text", ["[", "[]", '"FullPCPUs"', '{"requiredCPUBindPolicy":1}'])
def test_what_cannot_be_read_is_no_preference_and_is_reported(text: str) -> None:
    spec, problems = read(text)
    assert spec == ResourceSpec()
    assert [problem.object for problem in problems] == ["pod/a/b"]
    assert "without preferences" in problems[0].do


def test_an_unknown_word_is_reported() -> None:
    _, (problem,) = read('{"preferredCPUBindPolicy":"Half"}')
    assert problem.field == f"{keys.RESOURCE_SPEC}.preferredCPUBindPolicy"


def test_a_pod_has_its_preferences() -> None:
    notes = {keys.RESOURCE_SPEC: '{"requiredCPUBindPolicy":"FullPCPUs"}'}
    found = pod_reader.from_wire(objects.PodObject(metadata=objects.ObjectMeta(annotations=notes)))
    assert found.resource_spec.required_cpu_bind_policy == "FullPCPUs"
