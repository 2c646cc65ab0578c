"""The bodies between a kube-scheduler and its extenders: Go field names, one list or the other.

Source: kube-scheduler 1.36 against a recording extender, and k8s.io/kube-scheduler/extender/v1. Unknown fields are
ignored, a wrong type or a missing pod is an InputError that names the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from koordlite.model.errors import InputError, Problem
from koordlite.model.wire import objects
from koordlite.scheduler.nominations import LEAVING, Victims

T = TypeVar("T")
MOST_BYTES = 10 << 20
"""Longest body that is read. 5,000 whole Node objects are 13 MiB: a scheduler of so many has to send names."""


class _Body(msgspec.Struct, kw_only=True):
    """A body; field names are Go's."""


class NodeList(_Body):
    """`Nodes`: whole Node objects, kept as they came so that they can be given back."""

    items: list[msgspec.Raw] | None = None


class Arguments(_Body):
    """Body of filter and prioritize: a pod, and nodes by name (`nodeCacheCapable`) or as objects."""

    pod: objects.PodObject = msgspec.field(name="Pod")
    nodes: NodeList | None = msgspec.field(name="Nodes", default=None)
    node_names: list[str] | None = msgspec.field(name="NodeNames", default=None)


class MetaVictim(_Body):
    """A victim by uid."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(_Body):
    """The victims of one node, and how many of them a PodDisruptionBudget protects."""

    pods: list[MetaVictim] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PodVictims(_Body):
    """The same with whole pods."""

    pods: list[objects.PodObject] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptionArguments(_Body):
    """Body of preempt: the victims that the scheduler would evict, by node."""

    pod: objects.PodObject = msgspec.field(name="Pod")
    victims: dict[str, PodVictims] | None = msgspec.field(name="NodeNameToVictims", default=None)
    meta_victims: dict[str, MetaVictims] | None = msgspec.field(name="NodeNameToMetaVictims", default=None)

    @property
    def by_node(self) -> dict[str, Victims]:
        """The victims, in whichever form they came."""
        if self.meta_victims is not None:
            return {
                node: Victims(tuple(pod.uid for pod in each.pods or ()), each.violations)
                for node, each in self.meta_victims.items()
            }
        return {
            node: Victims(tuple(pod.metadata.uid for pod in each.pods or ()), each.violations)
            for node, each in (self.victims or {}).items()
        }


class BindingArguments(_Body):
    """Body of bind."""

    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


class _HostPriority(msgspec.Struct, gc=False):
    host: str = msgspec.field(name="Host")
    score: int = msgspec.field(name="Score")


class _NodeName(msgspec.Struct):
    metadata: objects.ObjectMeta = objects.ObjectMeta()


_READERS: dict[Any, msgspec.json.Decoder[Any]] = {
    shape: msgspec.json.Decoder(shape) for shape in (Arguments, PreemptionArguments, BindingArguments, _NodeName)
}


def read(shape: type[T], body: bytes, verb: str) -> T:
    """The arguments in `body`; InputError says which field is wrong."""
    try:
        arguments: T = _READERS[shape].decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        excerpt = body[:80].decode(errors="replace")
        do = "the caller has to be a kube-scheduler, and this verb the one its configuration names"
        raise InputError(Problem(f"request {verb}", "body", excerpt, str(error), do)) from error
    return arguments


def question(body: bytes, verb: str) -> tuple[Arguments, list[str]]:
    """The arguments of filter or prioritize, and the nodes that are asked about, in the order given. InputError also
    for a node object without a name."""
    arguments = read(Arguments, body, verb)
    if arguments.node_names is not None:
        return arguments, arguments.node_names
    items = (arguments.nodes.items if arguments.nodes else None) or []
    return arguments, [_name(item) for item in items]


def _name(item: msgspec.Raw) -> str:
    name = read(_NodeName, bytes(item), "filter").metadata.name
    if not name:
        raise InputError(Problem("request filter", "Nodes.items", "", "a node without a name", "name every node"))
    return name


def filter_answer(arguments: Arguments, names: list[str], passed: list[str], refused: dict[str, str]) -> bytes:
    """ExtenderFilterResult in the form of the question.

    Every refusal but LEAVING is one that evicting pods does not cure in the eyes of the scheduler: it asks only about
    nodes that have enough in all, so its search for victims finds none there, and says so in a text that differs each
    time. A node that is being emptied for the pod has to stay a resolvable one, or the scheduler empties another.
    """
    failed = {name: why for name, why in refused.items() if why == LEAVING}
    answer: dict[str, Any] = {
        "FailedAndUnresolvableNodes": {name: why for name, why in refused.items() if name not in failed}
        if failed
        else refused
    }
    if failed:
        answer["FailedNodes"] = failed
    if arguments.node_names is not None:
        answer["NodeNames"] = passed
    else:
        names_passed, items = set(passed), (arguments.nodes.items if arguments.nodes else None) or []
        items_passed = [item for name, item in zip(names, items, strict=True) if name in names_passed]
        answer["Nodes"] = {"metadata": {}, "items": items_passed}
    return msgspec.json.encode(answer)


def error_answer(text: str) -> bytes:
    """`Error`: the attempt fails, or the extender is passed over where it is ignorable."""
    return msgspec.json.encode({"Error": text})


def scores_answer(scores: list[tuple[str, int]]) -> bytes:
    """HostPriorityList."""
    return msgspec.json.encode([_HostPriority(host, score) for host, score in scores])


def preemption_answer(victims: Mapping[str, Victims]) -> bytes:
    """Victims by node. The scheduler reads uids only, also when it sent whole pods."""
    by_node = {
        node: {"Pods": [{"UID": uid} for uid in each.uids], "NumPDBViolations": each.violations}
        for node, each in victims.items()
    }
    return msgspec.json.encode({"NodeNameToMetaVictims": by_node})
