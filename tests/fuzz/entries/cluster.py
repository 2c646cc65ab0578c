"""What the API server and kubelet answer, and what is decided by it: settings, the Node, reports, watches, sockets."""

from __future__ import annotations

import json
from collections.abc import Callable

import grpc_server
import msgspec
from h2.connection import H2Connection

from koordlite.changes import cgroup
from koordlite.formulas.allocatable import node_room
from koordlite.kube.client import paging
from koordlite.kube.client.answers import Answer, ApiError, ApiUnreachable, refusal
from koordlite.kube.kubelet import checkpoints, pod_resources
from koordlite.kube.kubelet.grpc_call import Call
from koordlite.kube.watch import sources
from koordlite.kube.watch.reflector import Reflector
from koordlite.model import keys, nrt
from koordlite.model import node as nodes
from koordlite.model.errors import UNREADABLE, InputError, Problem
from koordlite.model.picture import node_notes
from koordlite.model.slo import config as slo
from koordlite.model.wire import objects
from koordlite.numa.koordinator import node_report
from tests.fuzz.entries import files, pods
from tests.fuzz.entries.files import refused, seed
from tests.fuzz.frame import Entry

CONFIG_MAP = {
    "colocation-config": {"enable": True, "cpuReclaimThresholdPercent": 60, "nodeConfigs": [{"nodeSelector": {}}]},
    "resource-threshold-config": {"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 65}},
    "resource-qos-config": {"clusterStrategy": {"beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}}}},
    "cpu-burst-config": {"clusterStrategy": {"policy": "auto", "cpuBurstPercent": 1000}},
    "system-config": {"clusterStrategy": {"minFreeKbytesFactor": 100}},
    "host-application-config": {"applications": [{"name": "x", "qos": "LS", "cgroupPath": {"relativePath": "a/b"}}]},
}
NODE_NOTES = {
    keys.RESERVATION: '{"resources":{"cpu":"2"},"reservedCPUs":"0-1","applyPolicy":"Default"}',
    keys.SYSTEM_QOS: '{"cpuset":"2-3","cpusetExclusive":true}',
    "node.koordinator.sh/cpu-normalization-ratio": "1.20",
    "node.koordinator.sh/raw-allocatable": '{"cpu":"8"}',
    "node.koordinator.sh/third-party-allocations": '{"allocations":[{"name":"x","resources":{"cpu":"1"}}]}',
    keys.AMPLIFICATION_RATIO: '{"cpu":1.1}',
    keys.COLOCATION_STRATEGY: '{"enable":true,"metricAggregatePolicy":{"durations":["5m","1h"]}}',
    keys.NETWORK_BANDWIDTH: "1.5Gi",
}
NODE_LABELS = {"a": "b", keys.CPU_RECLAIM_RATIO: "0.65", keys.CPU_NORMALIZATION_ENABLED: "true"}
NRT = {
    "metadata": {
        "name": "node-a",
        "resourceVersion": "3",
        "annotations": {
            keys.LS_SHARED_POOLS: '[{"socket":0,"node":0,"cpuset":"0-3"}]',
            "node.koordinator.sh/cpu-topology": '{"detail":[{"id":0,"core":0,"socket":0,"node":0}]}',
            "kubelet.koordinator.sh/cpu-manager-policy": '{"policy":"static","options":{"full-pcpus-only":"true"}}',
            "node.koordinator.sh/pod-cpu-allocs": '[{"namespace":"a","name":"b","uid":"u","cpuset":"1"}]',
            keys.PLACEMENT: '{"observedAt":"2026-01-01T00:00:00Z","generation":3,"containers":[{"namespace":"a",'
            '"pod":"b","uid":"c","container":"d","cpuset":"0-3","cpusByNUMA":{"0":"0-3"},"memoryByNUMA":{"0":5}}]}',
        },
    },
    "topologyPolicies": ["SingleNUMANodeContainerLevel"],
    "zones": [
        {
            "name": "node-0",
            "type": "Node",
            "resources": [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": "3"}],
            "costs": [{"name": "node-0", "value": 10}],
        }
    ],
}
_DECODE_NODE = msgspec.json.Decoder(objects.NodeObject).decode
_DECODE_NRT = msgspec.json.Decoder(objects.WrittenNRTObject).decode


def config_map(raw: bytes) -> str:
    """The data of slo-controller-config."""
    try:
        data = msgspec.json.decode(raw, type=dict[str, str])
    except UNREADABLE:
        return "a problem of the watch"
    found = slo.effective(data, labels={"a": "b"}, annotations={})
    again = slo.effective({}, labels={}, annotations={}, previous=found)
    slo.unused_problems(found, node_owner="node/a", off=frozenset())
    for problem in (*found.problems, *again.problems):
        str(problem).encode()  # Half of a surrogate pair would not be written anywhere.
    return str(sorted({problem.field[:24] for problem in (*found.problems, *again.problems)})[:3])


def node(raw: bytes) -> str:
    """The Node with its annotations."""
    try:
        wire = _DECODE_NODE(raw)
    except UNREADABLE:
        return "a problem of the watch"
    problems: list[Problem] = []
    found = nodes.from_wire(wire)
    notes = found.annotations
    for parse, key in ((nodes.parse_reservation, keys.RESERVATION), (nodes.parse_system_qos, keys.SYSTEM_QOS)):
        try:
            parse(notes.get(key, ""), "node/a")
        except InputError as error:
            problems += error.problems
    node_room.amplification(notes)
    node_notes.parse(notes, "node/a", last=node_notes.NodeNotes(), problems=problems)
    slo.effective({}, labels=found.labels, annotations=notes)
    return str(sorted({problem.field for problem in (*problems, *found.problems)}))


def report(raw: bytes) -> str:
    """A NodeResourceTopology, of which this node's is read back and others' are judged."""
    try:
        wire = _DECODE_NRT(raw)
    except UNREADABLE:
        return "a problem of the watch"
    problems: list[Problem] = []
    found = node_report.read(wire, problems)
    notes = wire.metadata.annotations or {}
    for parse, key in (
        (nrt.decode_pools, keys.LS_SHARED_POOLS),
        (nrt.decode_cpu_topology, "node.koordinator.sh/cpu-topology"),
        (nrt.decode_placement, keys.PLACEMENT),
    ):
        try:
            parse(notes.get(key, ""), "nrt")
        except InputError as error:
            problems += error.problems
    return f"{len(found.machine.cpus)} {sorted({problem.field[:24] for problem in problems})[:4]}"


def watch(raw: bytes) -> str:
    """Lines of a watch, after a list: a refusal is one, and the next request goes on from what is held."""
    reflector = Reflector(sources.pods("node-a"), uniform=lambda low, high: low)
    reflector.on_list("1", [msgspec.Raw(pods.SEEDS[0])], 0.0)
    reflector.on_watch(1.0)
    now = 1.0
    for line in filter(None, raw.split(b"\n")):
        now += 1.0
        try:
            reflector.on_line(line, now)
        except (ApiError, ApiUnreachable) as error:
            reflector.on_error(error, now)
            break
    view = reflector.view(now)
    ask = reflector.ask(now)
    return f"{ask.verb} {len(view.objects)} {len(view.problems)} {bool(view.state.error)}"


def pages(raw: bytes) -> str:
    """A list in parts, each of which is this."""
    asked = []

    def ask(*_args: object, **_options: object) -> Answer:
        asked.append(1)
        assert len(asked) < 200, "the list ends"
        return Answer(200, {}, raw)

    try:
        page = paging.collected(paging.pages(ask, "/x", (), 500, most_bytes=2**20))
        reflector = Reflector(sources.node("node-a"), uniform=lambda low, high: low)
        reflector.on_list(page.resource_version, page.items, 0.0)
    except (ApiError, ApiUnreachable) as error:
        return f"refused: {str(error)[:20]}"
    return f"{len(asked)} parts, {len(reflector.view(1.0).problems)} problems"


def answers(raw: bytes) -> str:
    """A refusal of the API server."""
    status, _, body = raw.partition(b"\n")
    error = refusal(Answer(int(status[:3]) if status[:3].isdigit() else 500, {"retry-after": "3"}, body))
    return f"{error.reason[:12]} {len(error.causes)} {error.retry_after_seconds is None} {len(str(error)) > 100}"


def place(raw: bytes) -> str:
    """A place as a user names it."""
    try:
        return str(cgroup.PLACE.parse(raw.decode(errors="replace")) is None)
    except ValueError:
        return "refused"


def unread(parse: Callable[[bytes], object]) -> Callable[[bytes], str]:
    """What is read, or refused as a ValueError."""

    def run(raw: bytes) -> str:
        try:
            return f"read {bool(parse(raw))}"
        except ValueError as error:
            return f"refused: {str(error)[:12]}"

    return run


def called(raw: bytes) -> str:
    """What a server says to a call of gRPC, in two pieces."""
    asked = Call("/v1.PodResourcesLister/List", b"", seconds=1)
    asked.to_send()
    try:
        for piece in (raw[: len(raw) // 2], raw[len(raw) // 2 :]):
            if not asked.ended:
                asked.receive(piece)
        return f"answer {bool(asked.answer())}" if asked.ended else "none yet"
    except OSError as error:
        return f"no answer: {error.errno}"  # A status, a stream that is reset, a connection that is closed.


def said(script: Callable[[H2Connection], object]) -> bytes:
    """What a server sends that is asked, and answers by `script`."""
    server = grpc_server.connection()
    server.initiate_connection()
    server.receive_data(Call("/v1.PodResourcesLister/List", b"", seconds=1).to_send())
    script(server)
    return server.data_to_send()


EVENTS = [
    b"\n".join(json.dumps({"type": word, "object": json.loads(pods.SEEDS[n])}).encode() for n, word in enumerate(words))
    for words in (["ADDED", "MODIFIED", "DELETED"], ["BOOKMARK", "ADDED"], ["ERROR"])
]
EVENTS += [b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}']
STATUS = {
    "kind": "Status",
    "code": 429,
    "reason": "TooManyRequests",
    "message": "no",
    "details": {"name": "x", "retryAfterSeconds": 7, "causes": [{"reason": "a", "message": "b", "field": "c"}]},
}


def message(**fields: bytes | str | int) -> bytes:
    """A protobuf message; `_1` names the field with number 1."""
    raw = b""
    for name, value in fields.items():
        number = int(name.lstrip("_"))
        if isinstance(value, int):
            raw += bytes([number << 3, value])
        else:
            content = value.encode() if isinstance(value, str) else value
            raw += bytes([number << 3 | 2, len(content)]) + content
    return raw


DEVICE = message(_1="x/gpu", _2="g0", _3=message(_1=message(_1=1)))
CONTAINER = message(_1="main", _2=DEVICE, _3=b"\x02\x03", _4=message(_1="memory", _2=64, _3=message(_1=b"")))
POD_RESOURCES = message(_1=message(_1="web", _2="default", _3=CONTAINER))
ALLOCATABLE = message(_1=DEVICE, _2=b"\x00\x01\x02", _3=message(_1="memory", _2=64))

CDI = {
    "cdiVersion": "0.8.0",
    "kind": "dra.k8s.io/cpu",
    "devices": [{"name": "claim-1", "containerEdits": {"env": ["DRA_CPUSET_1=2-3,6"]}}],
}
ENTRIES = [
    Entry(name="config-map", seeds=[seed({k: json.dumps(v) for k, v in CONFIG_MAP.items()})], run=config_map, weight=2),
    Entry(
        name="node",
        seeds=[seed({**files.NODE, "metadata": {"name": "a", "annotations": NODE_NOTES, "labels": NODE_LABELS}})],
        run=node,
    ),
    Entry(name="numa-report", seeds=[seed(NRT)], run=report),
    Entry(name="watch", seeds=EVENTS, run=watch),
    Entry(
        name="list",
        seeds=[seed({"metadata": {"resourceVersion": "3", "continue": ""}, "items": [files.NODE]})],
        run=pages,
    ),
    Entry(name="answers", seeds=[b"429\n" + seed(STATUS), b"500\nplain text"], run=answers),
    Entry(name="kubelet-memory-state", seeds=[seed(files.MEMORY_STATE)], run=refused(checkpoints.parse_memory)),
    Entry(name="kubelet-devices", seeds=[seed(files.DEVICES)], run=refused(checkpoints.parse_devices)),
    Entry(
        name="grpc-answer",
        seeds=[
            said(lambda server: grpc_server.answer(server, POD_RESOURCES)),
            said(lambda server: server.send_headers(1, (*grpc_server.HEADERS, ("grpc-status", "12")), end_stream=True)),
            said(lambda server: server.reset_stream(1)),
            said(lambda server: server.close_connection(additional_data=b"bye")),
        ],
        run=called,
        refusals=(ValueError,),
    ),
    Entry(name="pod-resources", seeds=[POD_RESOURCES], run=unread(pod_resources.parse_list)),
    Entry(name="claimed-cpus", seeds=[seed(CDI)], run=unread(pod_resources.parse_claims)),
    Entry(name="pod-resources-allocatable", seeds=[ALLOCATABLE], run=unread(pod_resources.parse_allocatable)),
]
