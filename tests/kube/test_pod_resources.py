"""Kubelet's pod-resources answers and checkpoints, down to the bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import grpc_server
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.kube.kubelet import checkpoints, pod_resources
from koordlite.kube.kubelet.pod_resources import PodResourcesClient
from koordlite.model.cpuset import CPUSet
from koordlite.model.errors import InputError
from koordlite.model.picture.kubelet import Devices, MemoryBlock, PodResources, ResourceSet

SERVICE = "v1.PodResourcesLister"
CAPTURES = os.environ.get("KUBELET_CAPTURES", "")
needs_captures = pytest.mark.skipif(not CAPTURES, reason="KUBELET_CAPTURES does not name a folder of captures")


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def _field(number: int, content: bytes | str | int) -> bytes:
    if isinstance(content, int):
        return _varint(number << 3) + _varint(content)
    raw = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _topology(*nodes: int) -> bytes:
    return b"".join(_field(1, _field(1, node) if node else b"") for node in nodes)


GPU = _field(1, "x.io/gpu") + _field(2, "g0") + _field(2, "g1") + _field(3, _topology(1))
MEMORY = _field(1, "memory") + _field(2, 1 << 33) + _field(3, _topology(0, 1))
MAIN = (
    _field(1, "main") + _field(2, GPU) + _field(3, _varint(2) + _varint(300)) + _field(4, MEMORY) + _field(9, "later")
)
POD = _field(1, _field(1, "p") + _field(2, "ns") + _field(3, MAIN))
GIVEN = ResourceSet(
    CPUSet((2, 300)), (Devices("x.io/gpu", ("g0", "g1"), (1,)),), (MemoryBlock("memory", 1 << 33, (0, 1)),)
)


def test_a_list_tells_cpus_devices_and_memory_of_each_container() -> None:
    assert pod_resources.parse_list(POD) == (PodResources("ns", "p", {"main": GIVEN}),)


def claim(*names: str, driver: str = "dra.cpu") -> bytes:
    """A container's dynamic resources: one claim with one device for each CDI name."""
    devices = b"".join(_field(4, _field(1, _field(1, name)) + _field(2, driver) + _field(4, "d")) for name in names)
    return _field(5, _field(2, "cpus") + _field(3, "ns") + devices)


def listed(*claims: bytes) -> bytes:
    return _field(1, _field(1, "p") + _field(2, "ns") + _field(3, _field(1, "app") + b"".join(claims)))


def test_cpus_of_resource_claims_are_named_as_the_container_runtime_names_them() -> None:
    raw = listed(
        claim("dra.k8s.io/cpu=claim-1", "dra.k8s.io/cpu=claim-1"), claim("gpu.example.com/gpu=g0", driver="gpu")
    )
    (pod,) = pod_resources.parse_list(raw)
    assert pod.containers == {"app": ResourceSet(claims=("dra.k8s.io/cpu=claim-1",))}


SPECIFICATION = {
    "cdiVersion": "0.8.0",
    "kind": "dra.k8s.io/cpu",
    "devices": [{"name": "claim-1", "containerEdits": {"env": ["DRA_CPUSET_1=2-3,6"]}}],
}


@pytest.mark.parametrize("file", ["dra.k8s.io-cpu_claim-1.json", "dra.cpu.json"])
def test_the_drivers_files_say_which_cpus_a_claim_is(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text(json.dumps(SPECIFICATION))
    (tmp_path / "other.example-gpu_0.json").write_text("no business of ours")
    names = ("dra.k8s.io/cpu=claim-1", "dra.k8s.io/cpu=claim-2")
    assert pod_resources.read_claims(str(tmp_path), names) == ({"dra.k8s.io/cpu=claim-1": CPUSet([2, 3, 6])}, "")


@pytest.mark.parametrize("content", ["", "[]", '{"kind": 1}', json.dumps(SPECIFICATION).replace("2-3,6", "2-x")])
def test_a_file_of_the_driver_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "dra.k8s.io-cpu_claim-1.json").write_text(content)
    found, wrong = pod_resources.read_claims(str(tmp_path), ("dra.k8s.io/cpu=claim-1",))
    assert (found, wrong.partition(":")[0]) == ({}, str(tmp_path / "dra.k8s.io-cpu_claim-1.json"))


def test_without_the_folder_the_kernel_says_so(tmp_path: Path) -> None:
    assert pod_resources.read_claims(str(tmp_path / "no"), ("x",)) == ({}, f"{tmp_path}/no: No such file or directory")


def test_numbers_are_read_packed_or_not() -> None:
    raw = _field(2, 1) + _field(2, 3) + _field(2, _varint(5))
    assert pod_resources.parse_allocatable(raw).cpus == CPUSet((1, 3, 5))


def test_numa_node_0_is_an_empty_message() -> None:
    raw = _field(1, _field(1, "r") + _field(2, "d") + _field(3, _field(1, b"")))
    assert pod_resources.parse_allocatable(raw).devices == (Devices("r", ("d",), (0,)),)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\x0a\x05ab", id="cut-off"),
        pytest.param(b"\x80" * 11, id="endless-number"),
        pytest.param(b"\x0b", id="group"),
        pytest.param(b"\x00\x01", id="field-0"),
        pytest.param(b"\x0a\x02\x0a\xff", id="cut-off-inside"),
        pytest.param(_field(1, 5), id="number-for-a-message"),
        pytest.param(_field(1, _field(1, b"\xff")), id="no-text"),
    ],
)
def test_what_is_no_message_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        pod_resources.parse_list(raw)


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    for parse in (pod_resources.parse_list, pod_resources.parse_allocatable):
        try:
            parse(raw)
        except ValueError:
            continue


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_number_comes_back_as_it_was(number: int) -> None:
    raw = _field(3, _field(2, number))
    assert pod_resources.parse_allocatable(raw).memory == (MemoryBlock("", number, ()),)


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[str]:
    """A pod-resources socket that answers with POD."""
    path = str(tmp_path / "kubelet.sock")
    with grpc_server.serving(path, SERVICE, {"List": lambda request, context: POD}):
        yield path


def test_the_socket_is_asked_with_grpc(socket: str) -> None:
    assert PodResourcesClient(socket).list()[0].containers["main"] == GIVEN


def test_a_method_kubelet_does_not_have_is_told_in_its_words(socket: str) -> None:
    with pytest.raises(OSError, match="UNIMPLEMENTED"):
        PodResourcesClient(socket).allocatable()


def test_a_socket_nobody_listens_on_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none"):
        PodResourcesClient(str(tmp_path / "none.sock"), timeout_seconds=2.0).list()
    (tmp_path / "no.sock").touch()
    with pytest.raises(OSError, match="Connection refused"):
        PodResourcesClient(str(tmp_path / "no.sock"), timeout_seconds=2.0).list()


MEMORY_STATE = json.dumps(
    {
        "policyName": "Static",
        "machineState": {"1": {"memoryMap": {"memory": {"allocatable": 50, "total": 60}}, "cells": [1]}},
        "entries": {"u": {"main": [{"numaAffinity": [1], "type": "memory", "size": 7}]}},
        "checksum": 3,
    }
).encode()


def test_the_memory_manager_s_promises_are_read() -> None:
    state = checkpoints.parse_memory(MEMORY_STATE)
    assert state.policy == "Static"
    assert state.blocks == {("u", "main"): (MemoryBlock("memory", 7, (1,)),)}
    assert state.allocatable == (MemoryBlock("memory", 50, (1,)),)


def test_devices_are_read_by_numa_node_and_without_one() -> None:
    entry = {"PodUID": "u", "ContainerName": "m", "ResourceName": "r", "DeviceIDs": {"0": ["a"], "-1": ["b"]}}
    raw = json.dumps({"Data": {"PodDeviceEntries": [entry]}, "Checksum": 1}).encode()
    assert checkpoints.parse_devices(raw) == {("u", "m"): (Devices("r", ("a",), (0,)), Devices("r", ("b",)))}


@pytest.mark.parametrize(
    "raw", [b"{", b"[]", b'{"machineState": {"x": {}}}', b'{"entries": {"u": {"c": [{"size": "7"}]}}}']
)
def test_a_broken_checkpoint_is_named(raw: bytes) -> None:
    with pytest.raises(InputError, match="memory_manager_state"):
        checkpoints.parse_memory(raw)


@given(st.binary(max_size=60))
def test_any_checkpoint_is_read_or_refused(raw: bytes) -> None:
    for parse in (checkpoints.parse_memory, checkpoints.parse_devices):
        try:
            parse(raw)
        except InputError:
            continue


@needs_captures
@pytest.mark.parametrize("name", ["static", "none", "device-plugin"])
def test_a_real_kubelet_s_bytes_say_what_its_own_decoder_said(name: str, tmp_path: Path) -> None:
    captured = json.loads((Path(CAPTURES) / name / "podresources.json").read_text())
    listed = pod_resources.parse_list(bytes.fromhex(captured["List"]["wire_hex"]))
    for pod, told in zip(listed, captured["List"]["json"]["pod_resources"], strict=True):
        assert (pod.namespace, pod.name) == (told["namespace"], told["name"])
        for container in told["containers"]:
            given_to = pod.containers[container["name"]]
            assert given_to.cpus == CPUSet(map(int, container.get("cpu_ids", ())))
            assert len(given_to.devices) == len(container.get("devices", ()))
    told = captured["GetAllocatableResources"]
    allocatable = pod_resources.parse_allocatable(bytes.fromhex(told["wire_hex"]))
    assert allocatable.cpus == CPUSet(map(int, told["json"].get("cpu_ids", ())))
    assert len(allocatable.devices) == len(told["json"].get("devices", ()))
    answers = {name: bytes.fromhex(captured[name]["wire_hex"]) for name in ("List", "GetAllocatableResources")}
    path = str(tmp_path / "kubelet.sock")
    with grpc_server.serving(path, SERVICE, {name: lambda *_, raw=raw: raw for name, raw in answers.items()}):
        assert (PodResourcesClient(path).list(), PodResourcesClient(path).allocatable()) == (listed, allocatable)


@needs_captures
def test_a_real_kubelet_s_checkpoints_are_read() -> None:
    raw = (Path(CAPTURES) / "device-plugin/kubelet_internal_checkpoint").read_bytes()
    ((key, devices),) = checkpoints.parse_devices(raw).items()
    assert key[1] == "main"
    assert devices == (Devices("example.com/dev", ("dev-0",), (0,)),)
    for policy in ("static", "none"):
        state = checkpoints.parse_memory(
            (Path(CAPTURES) / policy / "var_lib_kubelet/memory_manager_state").read_bytes()
        )
        assert (state.policy, state.blocks) == ("None", {})
