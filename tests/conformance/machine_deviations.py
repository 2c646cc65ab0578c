"""Where we read and write the kernel's files, and measure, differently on purpose."""

from __future__ import annotations

from tests.conformance import machine_rules
from tests.conformance.deviation import Deviation

DEVIATIONS = (
    Deviation(
        (
            "parse.memory_stat_v1",
            "parse.memory_stat_v2",
            "reader.ReadMemoryStat",
        ),
        machine_rules.memory_lines,
        "memory-stat-lines: only the lines that make up the use without page cache are read",
    ),
    Deviation(
        ("parse.cpu_stat_v2_full",),
        machine_rules.stat_lines,
        "cpu-stat-lines: user and system time are not told apart",
    ),
    Deviation(
        ("parse.cpu_max_quota_v2",),
        machine_rules.period_unread,
        "cpu-max-period: a cpu.max whose period is no number is refused",
    ),
    Deviation(
        (
            "parse.memory_numa_stat_v2",
            "reader.ReadMemoryNumaStat",
        ),
        machine_rules.numa_bytes,
        "numa-memory-bytes: bytes are added as they are, and node ids may have gaps",
    ),
    Deviation(
        ("reader.ReadColdPageUsage",),
        machine_rules.cold_pages,
        "cold-pages: kidled is not read",
    ),
    Deviation(
        ("validate.net_cls_classid", "executor.update", "executor.cgroup_update", "executor.write_if_different"),
        machine_rules.network_class,
        "network-class: net_cls is not written",
    ),
    Deviation(
        ("executor.update",),
        machine_rules.written_outright,
        "executor-cache: there is no cache that has to be started first",
    ),
    Deviation(
        ("executor.update", "executor.cgroup_update", "executor.write_if_different"),
        machine_rules.kubelet_field,
        "executor-kubelet-fields: a container's memory limit is kubelet's alone",
    ),
    Deviation(
        ("executor.update",),
        machine_rules.gone_told,
        "executor-gone: a file that is not there was not updated",
    ),
    Deviation(
        ("metric.system_usage",),
        machine_rules.one_instant,
        "metric-one-instant: all parts are of one sample, and what has none counts as nothing",
    ),
    Deviation(
        ("metric.host_app_usage",),
        machine_rules.host_memory,
        "host-app-memory: use with page cache is not read, and cannot spoil the rest",
    ),
    Deviation(
        ("parse.throttled_ratio", "metric.throttled_ratio"),
        machine_rules.counter_back,
        "counter-back: a counter that went back gives no value",
    ),
    Deviation(
        ("nodemetric.window", "nodemetric.report_interval"),
        machine_rules.shortest_times,
        "metric-shortest: times are what is configured, without a least one",
    ),
    Deviation(
        ("reader.ReadCPUShares",),
        machine_rules.idle_weight,
        "idle-weight: weight 0 is what the kernel prints for an idle group",
    ),
    Deviation(
        ("cgroup.parse_container_id",),
        machine_rules.any_runtime,
        "container-any-runtime: the name of a scope ends with the container's id, whatever runtime made it",
    ),
    Deviation(
        ("cgroup.host_app_dir",),
        machine_rules.path_inside,
        "config-host-path: a path that leads out of its base is left out",
    ),
    Deviation(
        ("cpuinfo.lscpu_parse",),
        machine_rules.without_cache,
        "cpu-without-cache: a CPU without a known L3 is a CPU, and its L3 is not number 0",
    ),
    Deviation(
        ("metric.be_real_limit_milli",),
        machine_rules.group_limit,
        "evict-be-limit: the set and the quota of the besteffort group count, not the smallest container",
    ),
)
