"""Containers that a real containerd creates as it is answered by NRI, started by runc on this machine's kernel."""

from __future__ import annotations

import json
import pathlib
import signal
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import containerd_node
import pytest
from containerd_node import Containerd, SandboxConfig
from realnode import beginning
from realnode.command import Command
from realnode.manifests import Manifests, threshold
from realnode.pods import Pod
from realnode.tree import Tree
from realnode.waiting import until

from koordlite.model.cpuset import CPUSet

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
Start = Callable[..., Command]


@pytest.fixture
def containerd(kubepods: Tree) -> Iterator[Containerd]:
    """It ends before the groups of its pods are removed."""
    # Not tmp_path: the path of a unix socket has 108 bytes at most.
    folder = tempfile.TemporaryDirectory(prefix="koordlite-nri-", ignore_cleanup_errors=True)
    with folder, containerd_node.running(pathlib.Path(folder.name)) as running:
        yield running


@pytest.fixture
def sandbox(kubepods: Tree, manifests: Manifests, containerd: Containerd) -> tuple[str, SandboxConfig]:
    """A batch pod whose pause process runs."""
    manifests.node()
    manifests.config(threshold=threshold(enable=False))
    manifests.pod(BATCH, named=False)
    beginning.make(kubepods, kubepods.pod(BATCH))
    return containerd.run_pod("batch", BATCH.uid, kubepods.pod(BATCH), {"koordinator.sh/qosClass": "BE"})


@pytest.fixture
def owner(
    request: pytest.FixtureRequest,
    sandbox: tuple[str, SandboxConfig],
    kubepods: Tree,
    manifests: Manifests,
    containerd: Containerd,
) -> tuple[Pod, tuple[str, SandboxConfig]]:
    """A pod of `OWNERS` whose pause process runs before the agent's first tick."""
    pod = OWNERS[request.param]
    manifests.kubelet(cpuManagerPolicy="none")
    manifests.pod(pod, named=False)
    beginning.make(kubepods, kubepods.pod(pod))
    return pod, containerd.run_pod(pod.name, pod.uid, kubepods.pod(pod), {"koordinator.sh/qosClass": pod.koord_qos})


@pytest.fixture
def restore(options: list[str], tmp_path: pathlib.Path) -> list[str]:
    """Arguments of `koordlite restore` for the node."""
    return ["restore", *options, "--published", str(tmp_path / "published")]


@pytest.fixture
def agent(
    enforce: list[str], start: Start, sandbox: tuple[str, SandboxConfig], containerd: Containerd, kubepods: Tree
) -> Command:
    """An agent that the runtime asks, after its first tick."""
    settings = containerd.folder / "koordlite.yaml"
    settings.write_text(f"agent: {{nri: auto, nriSocket: {containerd.nri_socket}, reaction: 'off'}}\n")
    agent = start(*enforce, "--interval", "10", "--config", str(settings), "--strategy", "craneCPUManager=enforce")
    until(lambda: "INFO NRI:" in agent.said() or not agent.alive(), "the runtime asks")
    quota = "80000"  # Of the pod's two containers.
    until(lambda: beginning.values(kubepods, kubepods.pod(BATCH))["quota"] == quota or not agent.alive(), "a tick")
    assert agent.alive(), agent.said()
    return agent


def spec(containerd: Containerd, container: str) -> dict[str, Any]:
    """What runc was given: the values of the first process, whatever came later."""
    bundle = containerd.folder / "state/io.containerd.runtime.v2.task/k8s.io" / container / "config.json"
    return json.loads(bundle.read_text())["linux"]["resources"]["cpu"]


def test_the_first_process_starts_with_its_values(
    agent: Command, containerd: Containerd, sandbox: tuple[str, SandboxConfig], kubepods: Tree
) -> None:
    """runc is given shares and quota; they stand when the start returns, and no CPU time is used outside of them."""
    container = containerd.create(sandbox, "main", BURN, **BY_KUBELET)
    containerd.start(container)
    group = f"{kubepods.pod(BATCH)}/{container}"
    assert (spec(containerd, container)["shares"], spec(containerd, container)["quota"]) == (SHARES, QUOTA)
    values = beginning.values(kubepods, group)
    assert (values["shares"], values["quota"]) == (str(SHARES), str(QUOTA))


@pytest.mark.parametrize("owner", OWNERS, indirect=True)
def test_the_first_process_runs_where_its_pod_is_promised_cpus(
    owner: tuple[Pod, tuple[str, SandboxConfig]],
    agent: Command,
    containerd: Containerd,
    kubepods: Tree,
    restore: list[str],
) -> None:
    """runc is given the set: the promised CPU for its owner, the others for its neighbours. A restore takes it back."""
    pod, sandbox = owner
    machine = kubepods.effective(kubepods.top)
    sets = {}
    for name in pod.containers:
        container = containerd.create(sandbox, name, SLEEP, cpu_shares=1024)
        containerd.start(container)
        group = f"{kubepods.pod(pod)}/{container}"
        sets[name] = CPUSet.parse(spec(containerd, container)["cpus"])
        assert kubepods.effective(group) == set(sets[name])
    assert len(sets["main"]) == 1
    assert all(set(others) == machine - set(sets["main"]) for name, others in sets.items() if name != "main")
    agent.kill()
    assert Command(restore, agent.log.with_suffix(".restore")).wait() == 0
    assert kubepods.effective(group) == machine


def test_a_restore_gives_back_what_the_container_would_have_had(
    agent: Command, containerd: Containerd, sandbox: tuple[str, SandboxConfig], kubepods: Tree, restore: list[str]
) -> None:
    """Killed after the answer, as at any time: 2 shares as kubelet asked for, and no quota."""
    container = containerd.create(sandbox, "main", SLEEP, **BY_KUBELET)
    agent.kill()
    containerd.start(container)
    group = f"{kubepods.pod(BATCH)}/{container}"
    assert spec(containerd, container)["shares"] == SHARES
    assert Command(restore, agent.log.with_suffix(".restore")).wait() == 0
    values = beginning.values(kubepods, group)
    assert (values["shares"], values["quota"]) == ("2", "-1")


def test_kubelets_update_leaves_ours_in_force_and_is_what_comes_back(
    agent: Command, containerd: Containerd, sandbox: tuple[str, SandboxConfig], kubepods: Tree, restore: list[str]
) -> None:
    container = containerd.create(sandbox, "main", SLEEP, **BY_KUBELET)
    containerd.start(container)
    containerd.update(container, cpu_shares=300)
    group = f"{kubepods.pod(BATCH)}/{container}"
    assert beginning.values(kubepods, group)["shares"] == str(SHARES)
    agent.kill()
    assert Command(restore, agent.log.with_suffix(".restore")).wait() == 0
    assert beginning.values(kubepods, group)["shares"] == "300"


def test_an_agent_that_stands_still_holds_no_container_for_long(
    agent: Command, containerd: Containerd, sandbox: tuple[str, SandboxConfig], kubepods: Tree
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
