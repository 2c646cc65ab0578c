"""Where we evict, migrate and protect differently on purpose."""

from __future__ import annotations

from tests.conformance import evict_rules, memory_rules, migration_rules
from tests.conformance.deviation import Deviation

DEVIATIONS = (
    Deviation(
        ("migrationFilter",),
        migration_rules.sibling_moves,
        "migration-siblings: pods of all ReplicaSets of a workload count together",
    ),
    Deviation(
        ("memory_evict.config_check",),
        evict_rules.threshold_not_set,
        "evict-memory-default: a memory threshold that is not set is 70 %, the default of the protocol",
    ),
    Deviation(
        ("cgroup_reconcile.calculate",),
        memory_rules.level_low,
        "memory-level-low: a level protects as much as its pods do, min included",
    ),
    Deviation(
        ("evict_util.default_executor",),
        evict_rules.only_by_api,
        "evict-by-api: pods go through the Eviction API, their containers are never merely stopped",
    ),
    Deviation(
        ("cpu_evict.be_sort",),
        evict_rules.no_priority,
        "evict-total-order: a pod without a priority has priority 0, and equals go by name",
    ),
    Deviation(
        (
            "cpu_evict.be_sort",
            "cpu_evict.reconcile",
            "memory_evict.reconcile",
            "cpu_evict.allocatable_release",
            "memory_evict.allocatable_release",
        ),
        evict_rules.finished,
        "evict-finished: pods that have ended are neither counted nor evicted",
    ),
    Deviation(
        ("cpu_evict.allocatable_release", "memory_evict.allocatable_release"),
        evict_rules.without_promise,
        "evict-promised-only: only requests of batch and mid resources count and are released",
    ),
    Deviation(
        ("memory_evict.allocatable_release",),
        evict_rules.in_doubles,
        "evict-in-doubles: shares of memory are worked out in doubles, not in single precision",
    ),
    Deviation(
        ("cpu_evict.reconcile", "memory_evict.reconcile"),
        evict_rules.nothing_to_release,
        "evict-contribution: a pod that releases nothing of what is missing stays",
    ),
    Deviation(
        ("evict_util.kill_and_evict",),
        evict_rules.idle_candidate,
        "evict-contribution: a pod that releases nothing of what is missing stays",
    ),
    Deviation(
        ("evict_util.kill_and_evict",),
        evict_rules.leaving_first,
        "evict-leaving: what is on its way out counts before a victim is looked for",
    ),
    Deviation(
        ("cpu_evict.reconcile", "memory_evict.reconcile"),
        evict_rules.promised_only,
        "evict-promised-only: only requests of batch and mid resources count and are released",
    ),
    Deviation(
        ("cpu_evict.reconcile", "memory_evict.reconcile"),
        evict_rules.judged_by_use,
        "evict-by-use: labels and annotations of its own protect no pod that uses more than it requests",
    ),
    Deviation(
        ("memory_evict.reconcile",),
        evict_rules.counted_in_bytes,
        "evict-bytes: a victim counts with the bytes it uses",
    ),
)
