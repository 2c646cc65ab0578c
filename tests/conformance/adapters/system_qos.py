"""CPUs of SYSTEM pods, from the annotation to the pools."""

from __future__ import annotations

import json
from typing import Any

from koordlite.formulas.cpu import pools
from koordlite.model import keys, node
from koordlite.model.errors import InputError
from koordlite.model.node import SystemQoS
from tests.conformance.adapters import adapter, shapes


@adapter("GetSystemQOSResource")
def resource(given: Any, expect: Any) -> tuple[Any, Any]:
    try:
        found = node.parse_system_qos((given.get("annotations") or {}).get(keys.SYSTEM_QOS), "node")
    except InputError:
        return {"error": True}, expect
    return found, expect if expect.get("error") else _system_qos(expect.get("result"))


@adapter("IsCPUSetExclusive")
def exclusive(given: Any, expect: Any) -> tuple[Any, Any]:
    return _system_qos(given).exclusive, expect


@adapter("removeSystemQOSCPUs")
def removed(given: Any, expect: Any) -> tuple[Any, Any]:
    held = _system_qos(given.get("sysQOSRes"))
    before = shapes.pools(given.get("cpuSharePools"))
    after = pools.without(before, held.cpuset) if held.exclusive else before
    return shapes.pool_rows(after), shapes.written_pools(expect)


def _system_qos(written: Any) -> SystemQoS:
    try:
        return node.parse_system_qos(json.dumps(written), "node")
    except InputError:
        # What cannot be read leaves the last good value, and there is none before.
        return SystemQoS()
