"""The demonstration cluster: what an emulated node runs when no other is named. Its manifests are the tour's."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from koordlite.lab.machine.machine import GiB, Machine
from koordlite.model import keys

NODE = "tour-a"
"""The Node of the emulated machine among the manifests."""
_MANIFESTS = "demo_cluster"
_CPUS, _MEMORY = 32, 256 * GiB
"""Size of the machine that the manifests are for."""


def write(folder: Path, machine: Machine) -> None:
    """Write the manifests for `machine` into `folder`, for people to edit while it runs.

    On a machine unlike the tour's the Node gets its size, and pods and reservations that name CPUs are left out: they
    would name CPUs that are not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted(resources.files(__package__).joinpath(_MANIFESTS).iterdir(), key=lambda each: each.name):
        text = source.read_text(encoding="utf-8")
        if (len(machine.cpus), machine.memory) != (_CPUS, _MEMORY):
            objects = [_fitted(each, machine) for each in yaml.safe_load_all(text) if each and not _assigned(each)]
            text = yaml.safe_dump_all(objects, sort_keys=False)
        (folder / source.name).write_text(text, encoding="utf-8")


def _assigned(manifest: dict[str, Any]) -> bool:
    annotations = manifest.get("metadata", {}).get("annotations", {})
    return keys.RESOURCE_STATUS in annotations or manifest["kind"] == "NodeResourceTopology"


def _fitted(manifest: dict[str, Any], machine: Machine) -> dict[str, Any]:
    if manifest["kind"] == "Node" and manifest["metadata"]["name"] == NODE:
        manifest["metadata"]["annotations"][keys.RESERVATION] = '{"resources":{"cpu":"1"}}'
        size = {"cpu": str(len(machine.cpus)), "memory": f"{machine.memory // 1024}Ki", "pods": "110"}
        manifest["status"] |= {"capacity": size, "allocatable": size}
    return manifest
