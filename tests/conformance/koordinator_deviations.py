"""Where Koordinator's NUMA rules are kept otherwise than its code keeps them, on purpose."""

from __future__ import annotations

from typing import Any

from koordlite.model.cpuset import CPUSet
from koordlite.numa.koordinator import ask, schedule
from koordlite.numa.koordinator.allocate import Supply
from koordlite.numa.koordinator.hints import masks
from koordlite.numa.koordinator.values import bits
from tests.conformance.adapters import koordinator_numa
from tests.conformance.deviation import Deviation


def own_words(given: Any, wanted: Any, found: Any) -> bool:
    """An annotation cannot be read, and the parser's words differ; the code is the same."""
    return bool(_code(wanted) == _code(found) == "Error")


def _code(answer: Any) -> Any:
    return answer.get("preFilter", answer).get("code")


def more_than_asked(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator takes the rest of an odd number once from each socket that is left."""
    return len(CPUSet.parse(wanted["cpus"])) > given["numCPUs"] == len(CPUSet.parse(found["cpus"]))


def other_order(given: Any, wanted: Any, found: Any) -> bool:
    """For some set of NUMA nodes, Koordinator's order is not that of what they have available."""
    if "pod" in given:
        asked = ask.of(koordinator_numa.pod_of(given["pod"]), koordinator_numa.settings_of(given))
        node = koordinator_numa.scheduled_node(given)
        assert isinstance(asked, ask.PodAsk)
        request = schedule.request_on(asked, node, koordinator_numa.settings_of(given))
    else:
        node, request = koordinator_numa.node_of(given), koordinator_numa.request_of(given)
    zones = Supply.of(node, request).zones
    amounts = [{zone: part[name].nano for zone, part in zones.items() if name in part} for name in request.requests]
    return any(
        _by_slots(bits(mask), each) != _by_amounts(bits(mask), each) for mask in masks(zones) for each in amounts
    )


def _by_amounts(nodes: tuple[int, ...], amounts: dict[int, int]) -> list[int]:
    return sorted(nodes, key=lambda node: (amounts.get(node, 0), node))


def _by_slots(nodes: tuple[int, ...], amounts: dict[int, int]) -> list[int]:
    """Sorted by insertion, where places in the list are compared as if they were numbers of NUMA nodes."""
    order = list(nodes)
    for end in range(1, len(order)):
        for place in range(end, 0, -1):
            if amounts.get(place, 0) >= amounts.get(place - 1, 0):
                break
            order[place - 1], order[place] = order[place], order[place - 1]
    return order


DEVIATIONS = (
    Deviation(
        ("PreFilter", "schedule"),
        own_words,
        "koord-words: what is wrong with an annotation is said in our parser's words",
    ),
    Deviation(
        ("takeCPUs", "takePreferredCPUs"),
        more_than_asked,
        "koord-exact-count: a pod never gets more CPUs than it asks for",
    ),
    Deviation(
        ("Allocate", "GetTopologyHints", "schedule"),
        other_order,
        "koord-zone-order: amounts are split over NUMA nodes in the order of what these have, whatever their numbers",
    ),
)
