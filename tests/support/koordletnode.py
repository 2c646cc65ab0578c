"""A node that koordlet left: the values that the protocol's rules give, and nobody who remembers what was before."""

from __future__ import annotations

import json
from pathlib import Path

from emulated import RESCTRL, Emulated

from koordlite import config
from koordlite.agent import Agent

CPU_QOS = {"lsClass": 2, "lsrClass": 2, "beClass": -1}


def slo(*, policy: str = "cpuset") -> dict[str, object]:
    """Every strategy of the node has something to do."""
    classes = {
        name: {
            "cpuQOS": {"enable": True, "groupIdentity": identity},
            "memoryQOS": {"enable": True, "minLimitPercent": 40, "lowLimitPercent": 50},
            **RESCTRL[name],
        }
        for name, identity in CPU_QOS.items()
    }
    threshold = {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": policy}
    return {
        "colocation-config": {"enable": True, "metricAggregateDurationSeconds": 10},
        "resource-threshold-config": {"clusterStrategy": threshold},
        "resource-qos-config": {"clusterStrategy": classes},
        "cpu-burst-config": {"clusterStrategy": {"policy": "auto", "cfsQuotaBurstPeriodSeconds": -1}},
    }


class Left:
    """The node, what its files held before anybody but kubelet wrote, and what its agent left."""

    def __init__(self, shape: str, folder: Path, *, policy: str = "cpuset") -> None:
        self.node = Emulated(shape, folder)
        self.node.raw_slo(slo(policy=policy))
        self.node.pod("web", "LS", "1", request="500m", memory="64Mi")
        pinned = json.dumps({"cpuset": "1"})
        self.node.pod("db", "LSR", "1", request="1", memory="64Mi", status=pinned)
        self.node.pod("crunch", "BE", "greedy", memory="64Mi", batch_cpu="10", limited=True)
        self.node.pod("other", "BE", "greedy")
        self.host = self.node.host()
        self.before = self.files()
        with self.node.journal() as journal:
            self.node.ticks(self.node.agent(journal), 30)
        # koordlet keeps no journal.
        (self.node.state / "journal.json").unlink()
        self.left = self.files()

    def files(self) -> dict[str, bytes]:
        """Every file of cgroups and resctrl that takes values, but for lists of threads."""
        names = {self.host.cgroups.path("", field).rpartition("/")[2] for field in _FIELDS if self._has(field)}
        found: dict[str, bytes] = {}
        for path in self.node.sandbox.files.paths("/sys/fs"):
            if path.rpartition("/")[2] in {*names, "schemata"}:
                found[path] = self.node.sandbox.files.read(path)
        return found

    def _has(self, field: str) -> bool:
        try:
            self.host.cgroups.path("", field)
        except ValueError:
            return False
        return True

    def picture(self):
        """What an observing agent sees, with all that strategies read."""
        agent = Agent(self.node.host(), self.node.cluster, config.with_modes(config.default(), "observe"))
        self.node.ticks(agent, 2)
        assert agent.snapshot is not None
        return agent.snapshot


_FIELDS = (
    *("cpuset.cpus", "cpu.quota", "cpu.shares", "cpu.burst", "cpu.idle", "cpu.bvt_warp_ns"),
    *("memory.min", "memory.low", "memory.high", "memory.limit", "memory.wmark_ratio", "memory.priority"),
    *("memory.wmark_scale_factor", "memory.wmark_min_adj", "memory.use_priority_oom", "memory.oom.group"),
)


def same(made, after, before):
    """Every file holds what it held. No v2 kernel takes an empty set back while there are tasks; all CPUs mean the
    same."""
    assert after.keys() == before.keys(), "groups of resctrl are gone"
    sets = {path for path, raw in before.items() if path.endswith("/cpuset.cpus") and not raw.strip()}
    assert {path: after[path] for path in before if path not in sets} == {
        path: raw for path, raw in before.items() if path not in sets
    }
    read = made.node.sandbox.files.read
    for path in (path for path in sets if "/kubepods" in path):
        assert read(f"{path}.effective") == read(f"{path.split('/kubepods')[0]}/cpuset.cpus.effective")
