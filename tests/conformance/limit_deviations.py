"""Where we limit best effort and divide caches differently on purpose."""

from __future__ import annotations

from typing import Any

from tests.conformance import suppress_rules
from tests.conformance.deviation import Deviation


def _zero_never_written(given: Any, wanted: Any, found: Any) -> bool:
    others = [tid for tid in wanted["writesInOrder"] if tid != "0"]
    return 0 in (given["taskIds"] or ()) and bool(found == {**wanted, "writesInOrder": others})


def _divides_one_only(given: Any, wanted: Any, found: Any) -> bool:
    return bool((given["schemata"] or "").strip()) and found == {"error": False}


def _offered_by_the_kernel(given: Any, wanted: Any, found: Any) -> bool:
    return wanted == {"supported": False} and found == {"supported": True}


def _group_gone(given: Any, wanted: Any, found: Any) -> bool:
    return given["tasksFile"] is None and found == {"tasks": [], "error": False}


def _empty_mask(given: Any, wanted: Any, found: Any) -> bool:
    """Koordinator's mask is empty; ours is the way in which the range begins, or the last one; none without ways."""
    mask = int(given["cbm"], 16) if isinstance(given["cbm"], str) else given["cbm"]
    if wanted != "0" or not mask:
        return bool(wanted == "0" and found == "")
    first = -(-mask.bit_length() * given.get("start", given.get("startPercent")) // 100)
    return bool(found == f"{1 << min(first, mask.bit_length() - 1):x}")


def _register_writes(given: Any, wanted: Any, found: Any) -> bool:
    """The lines that count writes are missing, and nothing else differs."""
    if given["op"]["op"] != "registers":
        return False
    rest = [line for line in wanted["readback"] if "writes=" not in line]
    return bool({**wanted, "readback": rest} == found)


DEVIATIONS = (
    Deviation(
        ("cpu_suppress.adjust_by_cpuset",),
        suppress_rules.least_change,
        "suppress-least-change: of all sets spread alike, the one with most CPUs of the present set",
    ),
    Deviation(
        ("cpu_suppress.adjust_by_cpuset",),
        suppress_rules.small_pool,
        "suppress-small-pool: where fewer CPUs are allowed than wanted, those are used, and no others",
    ),
    Deviation(
        ("cpu_suppress.adjust_by_cpuset",),
        suppress_rules.small_share,
        "suppress-small-pool: where fewer CPUs are allowed than wanted, those are used, and no others",
    ),
    Deviation(
        ("cpu_suppress.adjust_by_cpuset",),
        suppress_rules.no_pool,
        "suppress-no-pool: where every CPU is somebody's nothing is written",
    ),
    Deviation(
        ("cpu_suppress.adjust_by_cpuset",),
        suppress_rules.two_owners,
        "suppress-two-owners: a CPU promised to pods of two classes counts as the stricter one's",
    ),
    Deviation(
        ("cpu_suppress.adjust_by_cpuset", "cpu_suppress.recover_cpuset"),
        suppress_rules.without_topology,
        "suppress-own-topology: the machine and the Node are looked at, whether or not a topology was published",
    ),
    Deviation(
        ("cpu_suppress.adjust_by_cpuset",),
        suppress_rules.static_parents,
        "suppress-static-parents: under kubelet's static policy on v1 the groups above containers keep every CPU",
    ),
    Deviation(
        ("cpu_suppress.adjust_by_cfs_quota",),
        suppress_rules.from_unlimited,
        "suppress-from-unlimited: a limit is written at once where there was none, however small",
    ),
    Deviation(
        ("cpu_suppress.reconcile",),
        suppress_rules.round_by_set,
        "suppress-least-change: of all sets spread alike, the one with most CPUs of the present set",
    ),
    Deviation(
        ("cpu_suppress.reconcile",),
        suppress_rules.without_pods,
        "suppress-without-pods: a node without pods is judged as any other",
    ),
    Deviation(
        ("cpu_suppress.reconcile",),
        suppress_rules.settings_gone,
        "config-deleted: without settings the defaults hold, which are off",
    ),
    Deviation(
        ("cpu_suppress.calculate",),
        suppress_rules.labelled_outside,
        "suppress-by-cgroup: a pod outside the besteffort group is protected, whatever its label says",
    ),
    Deviation(
        ("cpu_suppress.reconcile",),
        suppress_rules.limit_kept,
        "be-cpu-manager: best effort stays limited, and containers keep to what was promised",
    ),
    Deviation(
        ("resctrl operation",),
        _register_writes,
        "resctrl-register-writes: how often the driver wrote a register is not counted",
    ),
    Deviation(
        ("koord_cat_l3_mask", "resctrl.l3_mask"),
        _empty_mask,
        "cache-mask-empty: a range that rounds to no way gets the smallest legal mask",
    ),
    Deviation(
        ("resctrl.write_tasks",),
        _zero_never_written,
        "resctrl-thread-zero: thread id 0 is never written, since it means the writer itself",
    ),
    Deviation(
        ("resctrl.schemata_valid",),
        _divides_one_only,
        "resctrl-partial: a machine that divides only cache or only bandwidth is used for what it has",
    ),
    Deviation(
        ("resctrl.vendor_supported",),
        _offered_by_the_kernel,
        "resctrl-detection: what the kernel offers is used, whoever made the CPU",
    ),
    Deviation(
        ("resctrl.read_tasks",),
        _group_gone,
        "resctrl-group-gone: a group that went between two looks has no threads, and is no error",
    ),
)
