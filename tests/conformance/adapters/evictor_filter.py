"""DefaultEvictor and Koordinator's EvictorFilter: which pods may go, and which arguments are refused."""

from __future__ import annotations

import json
from typing import Any

from descheduler.arguments.evictor import Args
from descheduler.arguments.migration import MigrationControllerArgs
from descheduler.framework import PodView, View
from koordlite.model.errors import ConfigError
from koordlite.model.reading import strict
from tests.conformance import descheduler_cases
from tests.conformance.adapters import adapter
from tests.conformance.descheduler_view import picture, written
from tests.support.handles import handle


@adapter("filter")
def default_filter(given: Any, expect: Any) -> tuple[Any, Any]:
    view, pod = _asked(given)
    return handle(view, _args(given.get("defaultEvictorArgs"))).evictable(pod), expect["result"]


@adapter("preEvictionFilter")
def default_last_filter(given: Any, expect: Any) -> tuple[Any, Any]:
    view, pod = _asked(given)
    return handle(view, _args(given.get("defaultEvictorArgs"))).movable(pod), expect["result"]


@adapter("koordEvictorFilter")
def koordinator_filter(given: Any, expect: Any) -> tuple[Any, Any]:
    view, pod = _asked(given)
    options = dict(given["opts"])
    if "priority" in options:
        options["priorityThreshold"] = {"value": options.pop("priority")}
    rules = strict.load(json.dumps(options), MigrationControllerArgs, "opts").evictor_args()
    asked = handle(view, rules)
    # Koordinator's filter asks for the node as well, when it is told to.
    return asked.evictable(pod) and (not rules.node_fit or asked.movable(pod)), expect["result"]


@adapter("ValidateDefaultEvictorArgs")
def validated(given: Any, expect: Any) -> tuple[Any, Any]:
    try:
        _args(given.get("args"))
    except ConfigError:
        return False, expect["valid"]
    return True, expect["valid"]


def _args(effective: Any) -> Args:
    return descheduler_cases.arguments(written(effective), Args)


def _asked(given: Any) -> tuple[View, PodView]:
    """The picture, with the pod in question in it."""
    meta = given["pod"]["metadata"]
    name, namespace = meta.get("name", ""), meta.get("namespace", "")
    others = [p for p in given.get("pods") or () if _place(p) != (namespace, name)]
    view = picture({**given, "pods": [*others, given["pod"]]})
    pods = (*view.unbound, *(pod for node in view.nodes.values() for pod in node.all_pods))
    return view, next(pod for pod in pods if (pod.pod.namespace, pod.pod.name) == (namespace, name))


def _place(pod: Any) -> tuple[str, str]:
    return pod["metadata"].get("namespace", ""), pod["metadata"].get("name", "")
