"""Messages and frames against recorded conversations with containerd."""

from __future__ import annotations

import dataclasses
from typing import Any

import nri_runtime
import pytest

from koordlite.nri import messages
from koordlite.nri.messages import ContainerAdjustment, LinuxContainerAdjustment, LinuxCPU, LinuxMemory, LinuxResources
from koordlite.nri.protobuf import decode, encode
from koordlite.nri.ttrpc import LONGEST_MESSAGE, REQUEST, RESPONSE, Frame, ProtocolError, Streams, framed

BOTH = ("plugin->runtime", "runtime->plugin")


def frames(name: str, direction: str) -> list[Frame]:
    streams = Streams()
    return [f for way, _, raw in nri_runtime.recorded(name) if way == direction for f in streams.feed(raw)]


def as_recorded(value: Any) -> Any:
    """A message as the recordings print it: 64 bits as text, zero values left out, a wrapper of zero empty."""
    if not dataclasses.is_dataclass(value):
        return value
    out: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        item, kind = getattr(value, field.name), field.metadata["kind"]
        if item is None or (not kind.optional and not item):
            continue
        name = {"nri_version": "NRI_version"}.get(field.name, field.name)
        if kind.optional and not dataclasses.is_dataclass(item):
            out[name] = {"value": str(item)} if item else {}
        elif kind.repeated:
            out[name] = [as_recorded(each) for each in item]
        else:
            out[name] = as_recorded(item)
    return out


def narrowed(recorded: Any, to: Any) -> Any:
    """What was recorded, without the fields that we do not declare."""
    if isinstance(recorded, dict) and dataclasses.is_dataclass(to):
        named = {
            {"nri_version": "NRI_version"}.get(f.name, f.name): getattr(to, f.name) for f in dataclasses.fields(to)
        }
        return {key: narrowed(value, named[key]) for key, value in recorded.items() if key in named}
    if isinstance(recorded, list) and isinstance(to, tuple):
        assert len(recorded) == len(to)
        return [narrowed(a, b) for a, b in zip(recorded, to, strict=True)]
    return recorded


@pytest.mark.parametrize("name", ["02_lifecycle_dedicated_rpc", "05_sync_3_pods"])
def test_every_recorded_call_reads_as_it_was_decoded(name: str) -> None:
    """Ids, labels, annotations, cgroups and all resources of 19 methods."""
    forms = {"Synchronize": messages.SynchronizeRequest, "Configure": messages.ConfigureRequest}
    decoded = [r for r in nri_runtime.exchange(name) if r.get("type") == "request" and r["dir"] == BOTH[1]]
    calls = [f for f in frames(name, BOTH[1]) if f.type == REQUEST]
    assert len(calls) == len(decoded) > 1
    events = 0
    for frame, record in zip(calls, decoded, strict=True):
        call = decode(messages.Request, frame.body)
        assert (call.service, call.method, call.timeout_nano) == (
            record["service"],
            record["method"],
            record["timeout_nano"],
        )
        message = decode(forms.get(call.method, messages.ContainerEvent), call.payload)
        payload = record["payload"]
        if call.method in ("Synchronize", "CreateContainer", "RunPodSandbox", "PostStartContainer"):
            ours = as_recorded(message)
            for each in (ours, payload):
                for container in each.get("containers") or [each.get("container")]:
                    if container:
                        container["state"] = 0  # Printed as a word.
            assert ours == narrowed(payload, message)
            events += call.method != "Synchronize"
    assert events or name.startswith("05")


def test_adjustments_are_the_bytes_that_containerd_took() -> None:
    """cpus and mems, shares with quota and period, an unlimited quota, zeros that are meant, memory, oom_score_adj."""
    answers = [f for f in frames("06_create_adjustments", BOTH[0]) if f.type == RESPONSE]
    recorded = {f.stream: decode(messages.Response, f.body).payload for f in answers}

    def cpu(**values: Any) -> LinuxContainerAdjustment:
        return LinuxContainerAdjustment(resources=LinuxResources(cpu=LinuxCPU(**values)))

    ours = [
        cpu(cpus="1", mems="0"),
        cpu(shares=2048, quota=30000, period=50000),
        cpu(quota=20000),
        cpu(quota=-1),
        cpu(shares=0),
        cpu(quota=0),
        LinuxContainerAdjustment(resources=LinuxResources(memory=LinuxMemory(limit=100663296))),
        LinuxContainerAdjustment(oom_score_adj=500),
        LinuxContainerAdjustment(oom_score_adj=-500),
        LinuxContainerAdjustment(resources=LinuxResources(rdt_class="gold")),
    ]
    for each in ours:
        raw = encode(messages.CreateContainerResponse(adjust=ContainerAdjustment(linux=each)))
        assert raw in recorded.values(), each
        read = decode(messages.CreateContainerResponse, raw).adjust
        assert read is not None and read.linux == each


@pytest.mark.parametrize("size", [0, 1, 4086, 4087, 70_000])
@pytest.mark.parametrize("piece", [1, 7, 4096, 1 << 20])
def test_a_message_comes_whole_in_any_pieces(size: int, piece: int) -> None:
    frame = Frame(1, 3, REQUEST, bytes(range(256)) * (size // 256) + bytes(size % 256))
    raw, streams = framed(frame), Streams()
    assert int.from_bytes(raw[4:8]) <= 4096
    if size == 70_000 and piece == 1:
        piece = 13
    got = [f for at in range(0, len(raw), piece) for f in streams.feed(raw[at : at + piece])]
    assert got == [frame]


def test_streams_do_not_mix_and_others_are_dropped() -> None:
    first, second = framed(Frame(1, 1, REQUEST, b"a" * 5000)), framed(Frame(2, 1, RESPONSE, b"b"))
    other = framed(Frame(9, 1, REQUEST, b"c"))
    cut = 8 + 4096
    got = list(Streams().feed(first[:cut] + other + second + first[cut:]))
    assert [(f.connection, f.body[:1]) for f in got] == [(2, b"b"), (1, b"a")]


@pytest.mark.parametrize(
    "raw",
    [
        (1).to_bytes(4) + (LONGEST_MESSAGE + 11).to_bytes(4),
        (1).to_bytes(4) + (10).to_bytes(4) + (LONGEST_MESSAGE + 1).to_bytes(4) + bytes(6),
    ],
    ids=["a mux frame over the bound", "a message over the bound"],
)
def test_lengths_beyond_all_bounds_end_the_connection(raw: bytes) -> None:
    with pytest.raises(ProtocolError, match="bytes"):
        list(Streams().feed(raw))


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"\x0a\x05ab", "cut off"),
        (b"\x0a", "does not end"),
        (b"\x08\x01", r"PodSandbox\.id: wire type 0"),
        (b"\x00", "field number 0"),
        (b"\x0b", "wire type 3"),
        (b"\x0a\x01\xff", "utf-8"),
        (b"\x08" + b"\xff" * 11, "does not end"),
    ],
)
def test_what_is_no_message_is_refused_with_its_reason(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode(messages.PodSandbox, raw)


def test_two_bytes_cannot_be_made_into_gigabytes() -> None:
    with pytest.raises(ValueError, match="more than 200000 items"):
        decode(messages.SynchronizeRequest, b"\x0a\x00" * 300_000)
