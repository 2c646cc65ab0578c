"""Files: koordlite.yaml, a folder of manifests, and what kubelet leaves on disk."""

from __future__ import annotations

import json
import pathlib
import tempfile
from collections.abc import Callable

from koordlite import config
from koordlite.kube.folder import manifest_files
from koordlite.kube.kubelet import configz
from koordlite.model.errors import ConfigError, InputError
from tests.fuzz.entries import pods
from tests.fuzz.frame import Entry

ROOT = pathlib.Path(__file__).parents[3]
_FOLDER = tempfile.TemporaryDirectory(prefix="koordlite-fuzz-")
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-a", "annotations": {"node.koordinator.sh/reservation": '{"reservedCPUs":"0-1"}'}},
    "status": {"capacity": {"cpu": "8", "memory": "16Gi"}, "allocatable": {"cpu": "8"}},
}
YAML = [
    b"apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: &x {a: b}, annotations: *x}\nspec: {}\n",
    b"kind: List\nitems:\n- kind: Node\n  metadata:\n    name: n\n  status: {capacity: {cpu: 8}}\n---\nkind: Pod\n",
]
TAGS = [b"!!int 12", b"!!float 1.5", b"!!bool true", b"!!timestamp 2026-01-01", b"!!binary aGk=", b"1:30", b".inf"]
YAML += [b"kind: Node\nmetadata: {name: a}\nextra: %s\n" % tag for tag in TAGS]
CPU_STATE = {
    "policyName": "static",
    "defaultCpuSet": "0,2-7",
    "entries": {"uid-a": {"main": "1"}},
    "checksum": 1353318690,
}
MEMORY_STATE = {
    "policyName": "Static",
    "machineState": {
        "0": {
            "numberOfAssignments": 1,
            "memoryMap": {"memory": {"total": 8, "systemReserved": 1, "allocatable": 7, "reserved": 2, "free": 5}},
            "cells": [0],
        }
    },
    "entries": {"uid-a": {"main": [{"numaAffinity": [0], "type": "memory", "size": 2}]}},
    "checksum": 1,
}
DEVICES = {
    "Data": {
        "PodDeviceEntries": [
            {
                "PodUID": "uid-a",
                "ContainerName": "main",
                "ResourceName": "x/gpu",
                "DeviceIDs": {"0": ["g"]},
                "AllocResp": "",
            }
        ],
        "RegisteredDevices": {"x/gpu": ["g"]},
    },
    "Checksum": 1,
}
CONFIGZ = {"kubeletconfig": {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-1", "kubeReserved": {"cpu": "1"}}}


def settings(raw: bytes) -> str:
    """koordlite.yaml, as check-config reads it."""
    try:
        config.parse(raw.decode(errors="surrogateescape"), "fuzz")
    except ConfigError as error:
        return f"{min(len(list(error.problems)), 3)} problems"
    return "read"


def manifests(raw: bytes) -> str:
    """One file of a folder of manifests."""
    path = pathlib.Path(_FOLDER.name) / "fuzz.yaml"
    path.write_bytes(raw)
    try:
        return str(sorted({type(each).__name__ for each in manifest_files.read(path)}))
    except InputError as error:
        return f"problem: {next(iter(error.problems)).why[:12]}"


def refused(parse: Callable[[bytes], object]) -> Callable[[bytes], str]:
    """A file that is read, or refused as an InputError."""

    def run(raw: bytes) -> str:
        try:
            return f"read {bool(parse(raw))}"
        except InputError as error:
            return f"problem: {next(iter(error.problems)).why[:12]}"

    return run


def seed(document: object) -> bytes:
    return json.dumps(document).encode()


ENTRIES = [
    Entry(
        name="settings",
        seeds=[(ROOT / "configs/koordlite.yaml").read_bytes(), b"agent: {intervalSeconds: 1}\n"],
        run=settings,
    ),
    Entry(name="manifests", seeds=[*YAML, seed(NODE), *pods.SEEDS[-5:]], run=manifests, weight=2),
    Entry(name="kubelet-cpu-state", seeds=[seed(CPU_STATE)], run=refused(configz.parse_cpu_manager_state)),
    Entry(name="kubelet-configz", seeds=[seed(CONFIGZ)], run=refused(configz.parse_configz)),
]
