"""Put back what was found: after restore, a stop, kills at random moments; byte for byte, on the real kernel."""

from __future__ import annotations

import pathlib
import random
import re
import time

import pytest
import slices
from realnode import command
from realnode.manifests import Manifests, threshold
from realnode.pods import Pod
from realnode.quick import Child, Quick
from realnode.tree import Tree
from realnode.waiting import until

from tests.kernel.conftest import Rig

SERVICE = Pod("service", "Burstable", "LS")
BATCH = Pod("batch", containers=("main", "side"))
KILLS = slices.amount(50, 5)
SEED = 20_240_607


def settle(kubepods: Tree, cluster: Manifests) -> dict[str, bytes]:
    """Two pods, CPU 0 reserved, quota policy; gives every byte before the agent ever ran."""
    for pod in (SERVICE, BATCH):
        cluster.pod(pod)
        kubepods.add(pod)
    # Somebody's own quota on one container: what is put back is what was found, not a default.
    kubepods.file(kubepods.container(BATCH, "side"), "cpu").write_text("1000")
    vary(cluster, 0)
    return kubepods.content()


def vary(cluster: Manifests, step: int) -> None:
    """Another reservation and now and then another policy, so that there is always something to write."""
    cluster.node(reservation={"reservedCPUs": str(step % 2)})
    cluster.config(threshold=threshold("cfsQuota" if step % 4 < 2 else "cpuset", percent=90))


def content(folder: pathlib.Path) -> bytes:
    """All that stands in the files of a folder."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def changed(kubepods: Tree, found: dict[str, bytes]) -> list[str]:
    """Files that do not hold what was found."""
    present = kubepods.content()
    return [path for path in found if present[path] != found[path]]


def test_restore_tells_first_and_then_gives_every_byte_back(rig: Rig) -> None:
    found = settle(rig.tree, rig.manifests)
    agent = rig.enforce("--on-stop", "keep")
    until(lambda: rig.tree.quota_us(rig.tree.qos("BestEffort")) > 0, "a quota was set")
    until(lambda: 0 not in rig.tree.cpus(rig.tree.container(SERVICE, "main")), "the service left CPU 0")
    assert agent.stop() == 0
    ours = rig.tree.content()
    touched = changed(rig.tree, found)
    assert touched

    told = rig.start("restore", *rig.options, "--dry-run")
    assert told.wait() == 0
    assert rig.tree.content() == ours
    for path in touched:
        group = path.rpartition("/")[0].partition(rig.tree.top)[2]
        assert f"{rig.tree.top}{group}" in told.output()

    done = rig.start("restore", *rig.options)
    assert done.wait() == 0, done.said()
    assert rig.tree.content() == found
    again = rig.start("restore", *rig.options, "--dry-run")
    assert again.wait() == 0
    assert rig.tree.top not in again.output()


def test_what_only_the_cluster_can_take_back_is_told_where_none_is_named(rig: Rig) -> None:
    folder = pathlib.Path(rig.options[rig.options.index("--state-dir") + 1]).parent
    journal = folder / "state" / "journal.json"
    found = settle(rig.tree, rig.manifests)
    rig.manifests.config(threshold=threshold("cfsQuota", percent=90), colocation={"enable": True})
    agent = rig.enforce("--on-stop", "keep")
    until(lambda: rig.tree.quota_us(rig.tree.qos("BestEffort")) > 0, "a quota was set")
    until(lambda: "kubernetes.io/batch-cpu" in journal.read_text(), "batch-cpu was published")
    assert agent.stop() == 0
    alone = rig.start("restore", *rig.options[2:])
    assert alone.wait() == 1
    assert re.search(r"^\d+ more of the Node stay in the journal: name its cluster", alone.output(), re.MULTILINE)
    assert rig.tree.content() == found
    told = rig.start("restore", *rig.options, "--dry-run")
    assert told.wait() == 0
    assert re.search(r"^node/kubernetes.io/batch-cpu +'ours' → '\(removed\)'$", told.output(), re.MULTILINE)
    published = folder / "published"
    assert b'"kubernetes.io/batch-cpu": "' in content(published)
    assert rig.start("restore", *rig.options, "--published", str(published)).wait() == 0
    assert b'"kubernetes.io/batch-cpu": "' not in content(published)
    again = rig.start("restore", *rig.options[2:])
    assert again.wait() == 0
    assert again.output().endswith("\nnothing to restore: no file holds a value of ours\n")


def test_a_stop_restores_where_the_settings_say_so(rig: Rig) -> None:
    found = settle(rig.tree, rig.manifests)
    agent = rig.enforce("--on-stop", "restore")
    until(lambda: changed(rig.tree, found), "something was written")
    assert agent.stop() == 0
    assert rig.tree.content() == found


@pytest.mark.timeout(600)  # Fifty kills and starts: half a minute on a quiet machine.
@pytest.mark.sliced
def test_kills_at_random_moments_lose_no_byte(rig: Rig, quick: Quick) -> None:
    """After a kill comes one of three: `restore`, a start that only observes, or a start that goes on enforcing. The
    first two put everything back; the third goes on, and must not take the dead run's limits for what was found."""
    found = settle(rig.tree, rig.manifests)
    rig.tree.load(SERVICE, duty=0.2)
    rig.tree.load(BATCH, duty=0.2)
    chance = random.Random(SEED)
    dirty = healed = 0
    most = 3 * first_write(rig.tree, quick, rig.options, found)
    for step in range(KILLS):
        agent = quick.start("run", *rig.options, "--mode", "enforce", "--no-http", "-q", "--interval", "0.05")
        work(agent, chance.uniform(0.0, max(0.5, most)))
        vary(rig.manifests, step + 1)
        work(agent, chance.uniform(0.0, max(0.4, most)))
        agent.kill()
        dirty += bool(changed(rig.tree, found))
        healed += command.TAKEN_OVER in agent.said()
        if put_back(quick, rig.options, chance.choice(("restore", "observe", "enforce"))):
            assert not changed(rig.tree, found), f"after kill {step + 1}"
    assert put_back(quick, rig.options, "restore")
    assert rig.tree.content() == found
    assert dirty >= KILLS // 2, "the kills came too early to mean anything"
    assert healed >= KILLS // 10, "no start that enforces found anything to go on with"


def first_write(kubepods: Tree, quick: Quick, options: list[str], found: dict[str, bytes]) -> float:
    """Seconds that a run takes here and now until it has written something; everything is put back then."""
    agent = quick.start("run", *options, "--mode", "enforce", "--no-http", "-q", "--interval", "0.05")
    seconds = until(lambda: changed(kubepods, found), "something was written")
    agent.kill()
    assert put_back(quick, options, "restore")
    return seconds


def work(agent: Child, seconds: float) -> None:
    """Let the agent work; that it ends by itself is a failure."""
    time.sleep(seconds)
    assert agent.alive(), agent.said()


def put_back(quick: Quick, options: list[str], way: str) -> bool:
    """Whether everything must be as found, because a command has just put it back."""
    if way == "enforce":
        return False
    observe = ("run", *options, "--mode", "observe", "--no-http", "-q", "--interval", "0.05", "--for", "0.05")
    done = quick.run("restore", *options) if way == "restore" else quick.run(*observe)
    assert done.said().endswith("exit 0\n"), done.said()
    return True
