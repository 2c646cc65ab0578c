"""Containers that a real containerd creates as it is answered by NRI, started by runc on this machine's kernel."""

from __future__ import annotations

import json
import pathlib
import signal
import tempfile
from collections.abc import Iterator
from typing import Any

import containerd_node
import pytest
from containerd_node import Containerd, SandboxConfig
from realnode import beginning
from realnode.command import Command
from realnode.manifests import threshold
from realnode.pods import Pod
from realnode.waiting import until

from koordlite.model.cpuset import CPUSet
from tests.kernel.conftest import Rig

pytestmark = [
    pytest.mark.skipif(bool(containerd_node.MISSING), reason=containerd_node.MISSING),
    pytest.mark.timeout(300),
]
MiB = 2**20
BATCH = Pod("batch", containers=("main", "side"), batch=(400, 64 * MiB))
SLEEP = ("/bin/sleep", "infinity")
BURN = ("/bin/sh", "-c", "while :; do :; done")
BY_KUBELET = {"cpu_shares": 2}
SHARES, QUOTA = 409, 40_000
"""Of 400 batch-cpu."""
OWNERS = {
    "cpusetPools": Pod("pinned", "Guaranteed", "LSR", pinned="1"),
    "crane": Pod("placed", "Guaranteed", "", crane=((0, 1),)),
    "one container alone": Pod(
        "app", "Guaranteed", "", ("main", "side"), crane=((0, 1),), notes=(("cpus.koordlite.io/exclusive", "main"),)
    ),
}
"""Pods with a CPU of their own, by what promises it."""


@pytest.fixture
def containerd(rig: Rig) -> Iterator[Containerd]:
    """It ends before the groups of its pods are removed."""
    # Not tmp_path: the path of a unix socket has 108 bytes at most.
    folder = tempfile.TemporaryDirectory(prefix="koordlite-nri-", ignore_cleanup_errors=True)
    with folder, containerd_node.running(pathlib.Path(folder.name)) as running:
        yield running


@pytest.fixture
def sandbox(rig: Rig, containerd: Containerd) -> tuple[str, SandboxConfig]:
    """A batch pod whose pause process runs."""
    rig.manifests.node()
    rig.manifests.config(threshold=threshold(enable=False))
    rig.manifests.pod(BATCH, named=False)
    beginning.make(rig.tree, rig.tree.pod(BATCH))
    return containerd.run_pod("batch", BATCH.uid, rig.tree.pod(BATCH), {"koordinator.sh/qosClass": "BE"})


@pytest.fixture
def owner(
    rig: Rig, request: pytest.FixtureRequest, sandbox: tuple[str, SandboxConfig], containerd: Containerd
) -> tuple[Pod, tuple[str, SandboxConfig]]:
    """A pod of `OWNERS` whose pause process runs before the agent's first tick."""
    pod = OWNERS[request.param]
    rig.manifests.kubelet(cpuManagerPolicy="none")
    rig.manifests.pod(pod, named=False)
    beginning.make(rig.tree, rig.tree.pod(pod))
    return pod, containerd.run_pod(pod.name, pod.uid, rig.tree.pod(pod), {"koordinator.sh/qosClass": pod.koord_qos})


@pytest.fixture
def restore(rig: Rig) -> list[str]:
    """Arguments of `koordlite restore` for the node."""
    return ["restore", *rig.options, "--published", str(rig.folder / "published")]


@pytest.fixture
def agent(rig: Rig, sandbox: tuple[str, SandboxConfig], containerd: Containerd) -> Command:
    """An agent that the runtime asks, after its first tick."""
    settings = containerd.folder / "koordlite.yaml"
    settings.write_text(f"agent: {{nri: auto, nriSocket: {containerd.nri_socket}, reaction: 'off'}}\n")
    agent = rig.enforce("--interval", "10", "--config", str(settings), "--strategy", "craneCPUManager=enforce")
    until(lambda: "INFO NRI:" in agent.said() or not agent.alive(), "the runtime asks")
    quota = "80000"  # Of the pod's two containers.
    until(lambda: beginning.values(rig.tree, rig.tree.pod(BATCH))["quota"] == quota or not agent.alive(), "a tick")
    assert agent.alive(), agent.said()
    return agent


def spec(containerd: Containerd, container: str) -> dict[str, Any]:
    """What runc was given: the values of the first process, whatever came later."""
    bundle = containerd.folder / "state/io.containerd.runtime.v2.task/k8s.io" / container / "config.json"
    return json.loads(bundle.read_text())["linux"]["resources"]["cpu"]


def test_the_first_process_starts_with_its_values(
    rig: Rig, agent: Command, containerd: Containerd, sandbox: tuple[str, SandboxConfig]
) -> None:
    """runc is given shares and quota; they stand when the start returns, and no CPU time is used outside of them."""
    container = containerd.create(sandbox, "main", BURN, **BY_KUBELET)
    containerd.start(container)
    group = f"{rig.tree.pod(BATCH)}/{container}"
    assert (spec(containerd, container)["shares"], spec(containerd, container)["quota"]) == (SHARES, QUOTA)
    values = beginning.values(rig.tree, group)
    assert (values["shares"], values["quota"]) == (str(SHARES), str(QUOTA))


@pytest.mark.parametrize("owner", OWNERS, indirect=True)
def test_the_first_process_runs_where_its_pod_is_promised_cpus(
    rig: Rig, owner: tuple[Pod, tuple[str, SandboxConfig]], agent: Command, containerd: Containerd, restore: list[str]
) -> None:
    """runc is given the set: the promised CPU for its owner, the others for its neighbours. A restore takes it back."""
    pod, sandbox = owner
    machine = rig.tree.effective(rig.tree.top)
    sets = {}
    for name in pod.containers:
        container = containerd.create(sandbox, name, SLEEP, cpu_shares=1024)
        containerd.start(container)
        group = f"{rig.tree.pod(pod)}/{container}"
        sets[name] = CPUSet.parse(spec(containerd, container)["cpus"])
        assert rig.tree.effective(group) == set(sets[name])
    assert len(sets["main"]) == 1
    assert all(set(others) == machine - set(sets["main"]) for name, others in sets.items() if name != "main")
    agent.kill()
    assert Command(restore, agent.log.with_suffix(".restore")).wait() == 0
    assert rig.tree.effective(group) == machine


def test_a_restore_gives_back_what_the_container_would_have_had(
    rig: Rig, agent: Command, containerd: Containerd, sandbox: tuple[str, SandboxConfig], restore: list[str]
) -> None:
    """Killed after the answer, as at any time: 2 shares as kubelet asked for, and no quota."""
    container = containerd.create(sandbox, "main", SLEEP, **BY_KUBELET)
    agent.kill()
    containerd.start(container)
    group = f"{rig.tree.pod(BATCH)}/{container}"
    assert spec(containerd, container)["shares"] == SHARES
    assert Command(restore, agent.log.with_suffix(".restore")).wait() == 0
    values = beginning.values(rig.tree, group)
    assert (values["shares"], values["quota"]) == ("2", "-1")


def test_kubelets_update_leaves_ours_in_force_and_is_what_comes_back(
    rig: Rig, agent: Command, containerd: Containerd, sandbox: tuple[str, SandboxConfig], restore: list[str]
) -> None:
    container = containerd.create(sandbox, "main", SLEEP, **BY_KUBELET)
    containerd.start(container)
    containerd.update(container, cpu_shares=300)
    group = f"{rig.tree.pod(BATCH)}/{container}"
    assert beginning.values(rig.tree, group)["shares"] == str(SHARES)
    agent.kill()
    assert Command(restore, agent.log.with_suffix(".restore")).wait() == 0
    assert beginning.values(rig.tree, group)["shares"] == "300"


def test_an_agent_that_stands_still_holds_no_container_for_long(
    rig: Rig, agent: Command, containerd: Containerd, sandbox: tuple[str, SandboxConfig]
) -> None:
    """Stopped like one that swaps: after the runtime's own 2 s the container starts with its own values. Running again,
    the agent is asked again."""
    agent.process.send_signal(signal.SIGSTOP)
    container = containerd.create(sandbox, "main", SLEEP, **BY_KUBELET)
    containerd.start(container)
    assert spec(containerd, container)["shares"] == 2
    agent.process.send_signal(signal.SIGCONT)
    until(lambda: agent.said().count("INFO NRI:") >= 2, "the runtime asks again")
    second = containerd.create(sandbox, "side", SLEEP, **BY_KUBELET)
    containerd.start(second)
    assert spec(containerd, second)["shares"] == SHARES


def test_a_container_that_is_removed_leaves_nothing_in_the_journal(
    agent: Command, containerd: Containerd, sandbox: tuple[str, SandboxConfig], tmp_path: pathlib.Path
) -> None:
    container = containerd.create(sandbox, "main", SLEEP, **BY_KUBELET)
    containerd.start(container)

    def is_noted() -> bool:
        return any(container in path.read_text() for path in (tmp_path / "state").glob("journal*") if path.exists())

    assert is_noted()
    containerd.remove(container)
    until(lambda: not is_noted(), "its entries go")
