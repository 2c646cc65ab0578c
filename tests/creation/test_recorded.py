"""What the agent answers in recorded conversations of containerd 2.3, whose kubelet's groups are `/nri/kubepods`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import nri_runtime
from emulated import Emulated

from koordlite.agent import Agent
from koordlite.host import bundle
from koordlite.host.bundle import Host
from koordlite.host.journal.journal import FileEntry, Journal
from koordlite.nri import LinuxContainerAdjustment, LinuxCPU, LinuxRdt, LinuxResources, Plugin, messages
from koordlite.nri.protobuf import decode
from koordlite.nri.ttrpc import REQUEST, Frame, Streams
from koordlite.ports import Files


def _calls(name: str) -> Sequence[tuple[messages.Request, messages.ContainerEvent]]:
    """The calls about containers of a recorded conversation."""
    streams = Streams()
    sent = [f for way, _, raw in nri_runtime.recorded(name) if way == "runtime->plugin" for f in streams.feed(raw)]
    calls = [decode(messages.Request, frame.body) for frame in sent if frame.type == REQUEST]
    about = [call for call in calls if call.method in ("CreateContainer", "UpdateContainer")]
    return [(call, decode(messages.ContainerEvent, call.payload)) for call in about]


def _groups(files: Files, name: str, *, containers: bool) -> None:
    """The groups that kubelet had made, below `/nri/kubepods`."""
    for _, event in _calls(name):
        assert event.pod and event.pod.linux and event.container and event.container.linux
        group = event.container.linux.cgroups_path if containers else event.pod.linux.cgroup_parent
        parts = group.strip("/").split("/")
        is_v1 = "cpuset/" in files.list("/sys/fs/cgroup")
        for controller in ("cpu,cpuacct", "cpuset", "memory") if is_v1 else (".",):
            for depth in range(1, len(parts) + 1):
                path = f"/sys/fs/cgroup/{controller}/{'/'.join(parts[:depth])}".replace("/./", "/")
                try:
                    files.list(path)
                except OSError:
                    files.mkdir(path)


def _agent(node: Emulated, journal: Journal) -> tuple[Agent, Host]:
    host = bundle.bind(node.sandbox.files, node.sandbox.clock, kubepods="nri/kubepods", cores=node.sandbox.cores)
    agent = Agent(host, node.cluster, node.settings("enforce", nri="auto"), journal)
    node.ticks(agent, 2)
    return agent, host


def _play(runtime: nri_runtime.Runtime, name: str) -> list[tuple[messages.Request, bytes]]:
    """The runtime's side of the conversation, byte by byte; calls and answers."""
    runtime.accept()
    runtime.receive()
    streams, answers = Streams(), []
    for way, _, raw in nri_runtime.recorded(name):
        if way == "runtime->plugin":
            runtime.send_bytes(raw)
            sent: list[Frame] = [frame for frame in streams.feed(raw) if frame.type == REQUEST]
            for frame in sent:
                response = decode(messages.Response, runtime.receive().body)
                answers.append((decode(messages.Request, frame.body), response.payload))
    return answers


def _conversation(agent: Agent, folder: Path, name: str) -> list[tuple[messages.Request, bytes]]:
    assert agent.creation is not None
    with nri_runtime.running(folder) as runtime:
        plugin = Plugin(agent.creation, name="koordlite", index="50", path=runtime.path)
        thread = threading.Thread(target=plugin.run)
        thread.start()
        try:
            return _play(runtime, name)
        finally:
            plugin.stop()
            runtime.drop()
            thread.join(nri_runtime.LONG_SECONDS)


def test_containers_of_every_class_are_created_as_the_rules_want(tmp_path: Path) -> None:
    """Guaranteed with CPUs promised to it, one that kubelet has pinned, burstable and best effort: CPU 0 is reserved.

    Whether the first gets its CPUs depends on pods that only a whole picture shows; the second keeps kubelet's; the
    last has best effort's set, which its group has from the one above."""
    node = Emulated("amd-ccd", tmp_path)
    node.node(reservation='{"reservedCPUs":"0","applyPolicy":"Default"}')
    node.pod("web", "LS", "500m")
    _groups(node.sandbox.files, "04_create_kinds", containers=False)
    with node.journal() as journal:
        agent, _ = _agent(node, journal)
        answers = _conversation(agent, tmp_path, "04_create_kinds")
        raw = [answer for call, answer in answers if call.method == "CreateContainer"]
        adjustments = [decode(messages.CreateContainerResponse, answer).adjust for answer in raw]
        burstable = LinuxResources(cpu=LinuxCPU(cpus="1-31"))
        assert [adjust and adjust.linux for adjust in adjustments] == [
            None,
            None,
            LinuxContainerAdjustment(resources=burstable, rdt=LinuxRdt(clos_id="LS")),
            LinuxContainerAdjustment(rdt=LinuxRdt(clos_id="BE")),
        ]
        assert agent.creation and agent.creation.state.results == {"asItIs": 2, "adjusted": 2}
        (entry,) = (each for each in journal.entries if isinstance(each, FileEntry) and each.at_creation)
        assert (entry.field, entry.group.rpartition("/")[0]) == (
            "cpuset.cpus",
            "nri/kubepods/burstable/pod49fd70ad-1111-2222-3333-71d8b188c81c",
        )


def test_what_kubelet_asks_for_in_a_resize_is_what_a_restore_gives_back(tmp_path: Path) -> None:
    """Eleven updates of one container, each of which names only some of its values: 0 names nothing."""
    node = Emulated("small", tmp_path)
    node.pod("web", "LS", "500m")
    _groups(node.sandbox.files, "08_update_container", containers=True)
    with node.journal() as journal:
        agent, host = _agent(node, journal)
        (group,) = {
            event.container.linux.cgroups_path.strip("/")
            for _, event in _calls("08_update_container")
            if event.container and event.container.linux and event.container.name == "a"
        }
        fields = {"cpu.shares": b"2", "cpu.quota": b"1000", "cpuset.cpus": b"3", "memory.limit": b"4096"}
        journal.record(
            FileEntry.of(path=host.cgroups.path(group, field), group=group, field=field, raw=raw, found_at=0.0)
            for field, raw in fields.items()
        )
        answers = _conversation(agent, tmp_path, "08_update_container")
        assert sum(call.method == "UpdateContainer" for call, _ in answers) == 13
        entries = {e.field: e.raw for e in journal.entries if isinstance(e, FileEntry) and e.group == group}
        assert entries == {"cpu.shares": b"930", "cpu.quota": b"-1", "cpuset.cpus": b"0-1", "memory.limit": b"67108864"}
