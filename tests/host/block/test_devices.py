"""From the names people use to the numbers the kernel uses, from a /sys and mounts as a node has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from koordlite.host import block

if TYPE_CHECKING:
    from planted import Rooted

VOLUMES = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi"
TREE = {
    "/sys/block/vda/dev": "254:0\n",
    "/sys/block/vda/vda1/dev": "254:1\n",
    "/sys/block/vda/vda1/partition": "1\n",
    "/sys/block/nvme0n1/dev": "259:0\n",
    "/sys/block/nvme0n1/nvme0n1p20/dev": "259:20\n",
    "/sys/block/nvme0n1/nvme0n1p20/partition": "20\n",
    "/sys/block/vda/queue/rotational": "1\n",
    "/sys/block/dm-0/dev": "253:0\n",
    "/sys/block/dm-0/dm/name": "fast--pool-data\n",
    "/sys/block/dm-0/slaves/nvme0n1p20/dev": "259:20\n",
    "/sys/block/dm-1/dev": "253:1\n",
    "/sys/block/dm-1/dm/name": "slow-logs--old\n",
    "/sys/block/dm-1/slaves/vda1/dev": "254:1\n",
    "/sys/block/dm-2/dev": "253:2\n",
    "/sys/block/dm-2/dm/name": "slow-more\n",
    "/sys/block/dm-2/slaves/dm-1/dev": "253:1\n",
    "/sys/block/dm-2/slaves/nvme0n1/dev": "259:0\n",
    "/sys/dev/block/253:0/uevent": "MAJOR=253\nMINOR=0\nDEVNAME=dm-0\n",
    "/sys/dev/block/254:1/uevent": "MAJOR=254\nMINOR=1\nDEVNAME=vda1\n",
    "/proc/1/mountinfo": (
        f"600 29 253:0 / {VOLUMES}/pvc-7/mount rw,relatime shared:3 - ext4 /dev/mapper/fast--pool-data rw\n"
        f"601 29 254:1 /x {VOLUMES}/inline/mount rw - xfs /dev/vda1 rw\n"
    ),
}


@pytest.fixture
def node(machine: Rooted) -> Rooted:
    """Two disks with partitions, two volume groups, a pod with two volumes."""
    return machine.plant(TREE).folder(f"{VOLUMES}/pvc-7/mount", f"{VOLUMES}/inline/mount")


@pytest.mark.parametrize(
    ("name", "disks"),
    [
        pytest.param("vda", ("254:0",), id="a disk"),
        pytest.param("/dev/vda1", ("254:0",), id="a partition stands for its disk"),
        pytest.param("nvme0n1p20", ("259:0",), id="also where its number is above 16"),
        pytest.param("mapper/fast--pool-data", ("253:0",), id="a mapped device by its name"),
        pytest.param("dm-1", ("253:1",), id="a mapped device by its number"),
        pytest.param("queue", (), id="a folder of a disk is no partition"),
        pytest.param("sda", (), id="there is none"),
        pytest.param("", (), id="no name"),
    ],
)
def test_devices(node: Rooted, name: str, disks: tuple[str, ...]) -> None:
    assert block.of_device(node, name) == disks


@pytest.mark.parametrize(
    ("name", "disks"),
    [
        pytest.param("fast-pool", ("259:0",), id="LVM doubles the dash of a name"),
        pytest.param("slow", ("259:0", "254:0"), id="all disks of all its volumes, through layers"),
        pytest.param("fast", (), id="a part of a name is no name"),
    ],
)
def test_volume_groups(node: Rooted, name: str, disks: tuple[str, ...]) -> None:
    assert block.of_volume_group(node, name) == disks


@pytest.mark.parametrize(
    ("uid", "name", "disks"),
    [
        pytest.param("u1", "pvc-7", ("259:0",), id="a PersistentVolume on LVM"),
        pytest.param("u1", "inline", ("254:0",), id="an inline volume on a partition"),
        pytest.param("u1", "claim", (), id="two volumes, and neither is called so"),
        pytest.param("u2", "pvc-7", (), id="another pod's"),
    ],
)
def test_pod_volumes(node: Rooted, uid: str, name: str, disks: tuple[str, ...]) -> None:
    assert block.of_pod_volume(node, uid, name) == disks


def test_the_only_volume_of_a_pod_needs_no_name(machine: Rooted) -> None:
    machine.plant(TREE).folder(f"{VOLUMES}/pvc-7/mount")
    assert block.of_pod_volume(machine, "u1", "claim-of-any-name") == ("259:0",)
