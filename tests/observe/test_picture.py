"""One look: what is in the picture, and what holds when a part of it cannot be had."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from emulated import Emulated
from msgspec import structs

from koordlite import changes
from koordlite.formulas.cpu import pools
from koordlite.model import keys
from koordlite.model.cpuset import CPUSet
from koordlite.model.picture.groups import Original, RunState
from koordlite.model.picture.kubelet import KubeletResources, PodCPUs, PodResources, ResourceSet
from koordlite.model.pod.qos import QoSClass
from koordlite.model.slo import settings as slo
from koordlite.model.slo.settings import HostApplication
from koordlite.model.snapshot import Snapshot
from koordlite.observe import Observer
from koordlite.ports import ClusterView

ObserveShape = Callable[[str], tuple[Emulated, Observer]]
ONLINE = "/sys/devices/system/cpu/online"


def after(node: Emulated, observer: Observer, seconds: float = 1.0) -> Snapshot:
    node.sandbox.advance(seconds)
    return observer.observe()


def test_cpus_of_resource_claims_are_their_pods_whatever_its_class(
    node: Emulated, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = node.cluster.view
    app = PodResources(
        "ns", "web", {"main": ResourceSet(claims=("dra.k8s.io/cpu=c",), claimed=CPUSet([2, 3])), "log": ResourceSet()}
    )
    gone = PodResources("ns", "gone", {"main": ResourceSet(claims=("dra.k8s.io/cpu=d",), claimed=CPUSet([4]))})
    given = KubeletResources("pod-resources", ResourceSet(), (app, gone))

    def with_claims() -> ClusterView:
        present = view()
        return structs.replace(present, kubelet=structs.replace(present.kubelet, resources=given))

    monkeypatch.setattr(node.cluster, "view", with_claims)
    snapshot = observer.observe()
    assert snapshot.kubelet.pod_cpus == (PodCPUs("uid-web", CPUSet([2, 3]), {"main": CPUSet([2, 3])}, claimed=True),)
    assert after(node, observer).kubelet.pod_cpus is snapshot.kubelet.pod_cpus


# ── usage ──


def test_the_first_look_knows_no_usage_and_the_second_does(node: Emulated, observer: Observer) -> None:
    first, second = observer.observe(), after(node, observer)
    assert (first.usage.node, first.usage.pods) == (None, {})
    assert second.usage.node is not None
    assert second.usage.node.cpu == pytest.approx(4000, abs=20)
    assert second.usage.pods["uid-web"].cpu == pytest.approx(1000, abs=5)
    assert second.usage.best_effort_cpu == pytest.approx(3000, abs=20)


def test_the_use_window_of_a_run_fills_once(node: Emulated, observer: Observer) -> None:
    seconds = slo.collect_policy(observer.observe().slo.colocation).metric_aggregate_duration_seconds
    left = [after(node, observer, wait).use_window_left_seconds for wait in (1.0, 4.0, seconds - 5.0, 1.0, 5.0)]
    assert left == pytest.approx([seconds, seconds - 4, 1, 0, 0])


def test_a_look_without_time_in_between_gives_no_usage_and_does_no_harm(node: Emulated, observer: Observer) -> None:
    after(node, observer)
    assert observer.observe().usage.node is None
    again = after(node, observer)
    assert again.usage.node is not None
    assert again.usage.pods["uid-web"].cpu == pytest.approx(1000, abs=5)


def test_unreadable_counters_are_a_problem_and_an_age_not_an_end(node: Emulated, observer: Observer) -> None:
    after(node, observer)
    after(node, observer)
    node.sandbox.fail("/proc/stat", errno.EIO, times=3)
    blind = [after(node, observer) for _ in range(3)]
    assert [seen.usage.node for seen in blind] == [None] * 3
    assert [round(seen.ages["usage"]) for seen in blind] == [1, 2, 3]
    assert "Input/output error" in str(blind[0].problems[0])
    seeing = after(node, observer)
    assert seeing.usage.node is not None
    assert (seeing.ages["usage"], seeing.problems) == (0.0, ())


def test_a_pod_that_comes_back_under_its_name_is_another_pod(node: Emulated, observer: Observer) -> None:
    after(node, observer)
    after(node, observer)
    node.pod("web", "LS", "2", uid="uid-second")
    born, known = after(node, observer), after(node, observer)
    assert "uid-web" not in {**born.usage.pods, **known.usage.pods}
    assert "uid-second" not in born.usage.pods
    assert known.usage.pods["uid-second"].cpu == pytest.approx(2000, abs=10)
    assert known.average.pods["uid-second"] == known.usage.pods["uid-second"]


def test_means_follow_the_window_of_the_configmap(node: Emulated, observer: Observer) -> None:
    for _ in range(30):
        seen = after(node, observer)
    assert seen.average.samples == 11
    assert seen.average.pods["uid-web"].cpu == pytest.approx(1000, abs=5)


# ── inputs that go bad ──


def test_a_broken_reservation_keeps_the_last_good_one(node: Emulated, observer: Observer) -> None:
    node.node(reservation='{"reservedCPUs":"1"}')
    good = after(node, observer)
    node.node(reservation='{"reservedCPUs":')
    bad = after(node, observer, 2.0)
    assert good.reserved.cpus == bad.reserved.cpus == CPUSet([1])
    assert not good.problems
    assert [problem.field for problem in bad.problems] == [keys.RESERVATION]
    assert "last good value stays" in str(bad.problems[0])
    node.node()
    assert not after(node, observer, 2.0).reserved.cpus


@pytest.mark.parametrize("text", ['{"reservedCPUs":"0-3"}', '{"resources":{"cpu":"4"}}'])
def test_a_reservation_of_the_whole_machine_is_a_problem_with_its_value(
    node: Emulated, observer: Observer, text: str
) -> None:
    node.node(reservation=text)
    (problem,) = after(node, observer).problems
    assert (problem.object, problem.field, problem.value) == ("node/node-a", keys.RESERVATION, text)
    assert problem.why == "it reserves all 4 CPUs of the machine, so none is left for pods"
    node.node(reservation='{"reservedCPUs":"0-2"}')
    assert after(node, observer).problems == ()


def test_a_reservation_beyond_the_machine_says_what_holds(node: Emulated, observer: Observer) -> None:
    node.node(reservation='{"reservedCPUs":"0-999"}')
    seen = after(node, observer)
    assert seen.reserved.cpus == CPUSet.parse("0-2")
    (problem,) = seen.problems
    assert (problem.object, problem.field) == ("node/node-a", keys.RESERVATION)
    assert "machine has no CPU" in problem.why


def test_a_broken_system_qos_annotation_keeps_the_last_good_one(node: Emulated, observer: Observer) -> None:
    node.node(system_qos='{"cpuset":"3"}')
    after(node, observer)
    node.node(system_qos='{"cpuset":"x"}')
    seen = after(node, observer, 2.0)
    assert seen.system_qos.cpuset == CPUSet([3])
    assert [problem.field for problem in seen.problems] == [keys.SYSTEM_QOS]


def test_a_broken_configmap_key_keeps_the_last_good_one(node: Emulated, observer: Observer) -> None:
    node.slo(percent=50)
    after(node, observer)
    node.raw_slo({"resource-threshold-config": "{"})
    seen = after(node, observer, 2.0)
    assert seen.slo.threshold.cpu_suppress_threshold_percent == 50
    assert any("resource-threshold-config" in problem.field for problem in seen.problems)


# ── what did not change is not looked at again ──


def test_unchanged_objects_are_parsed_once(node: Emulated, observer: Observer) -> None:
    first = after(node, observer)
    same = after(node, observer, 2.0)
    assert same.node is first.node
    assert same.slo is first.slo
    assert all(a is b for a, b in zip(first.pods, same.pods, strict=True))
    node.pod("web", "LS", "2")
    other = after(node, observer, 2.0)
    assert {pod.name for pod in other.pods if not any(pod is known for known in first.pods)} == {"web"}


def test_the_topology_is_read_again_when_cpus_come_or_go(
    node: Emulated, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = observer.observe()
    assert after(node, observer).topology is first.topology
    read = node.sandbox.files.read
    monkeypatch.setattr(node.sandbox.files, "read", lambda path: b"0-2\n" if path == ONLINE else read(path))
    seen = after(node, observer)
    assert seen.topology.cpuset == CPUSet.parse("0-2")


# ── groups ──


def test_containers_and_sandboxes_of_pods_are_found(node: Emulated, observer: Observer) -> None:
    seen = observer.observe()
    place = seen.places["uid-web"]
    assert set(place.containers) == {"main"}
    assert len(place.sandboxes) == 1
    assert {place.group, *place.containers.values(), *place.sandboxes} <= set(seen.cgroups)


def test_groups_below_besteffort_that_belong_to_no_pod_are_seen_too(node: Emulated, observer: Observer) -> None:
    node.sandbox.files.mkdir("/sys/fs/cgroup/cpuset/kubepods/besteffort/stray")
    node.sandbox.files.mkdir("/sys/fs/cgroup/cpu,cpuacct/kubepods/besteffort/stray")
    assert "kubepods/besteffort/stray" in observer.observe().cgroups


def test_a_pod_without_groups_is_in_the_picture_without_a_place(node: Emulated, observer: Observer) -> None:
    seen = after(node, observer)
    node.sandbox.kubelet.end_below(seen.places["uid-web"].group)
    gone = after(node, observer)
    assert {pod.name for pod in gone.pods} == {"web", "crunch"}
    assert "uid-web" not in gone.places


# ── resctrl, ages, names ──


def test_threads_are_looked_at_every_so_often(observe_shape: ObserveShape) -> None:
    node, observer = observe_shape("intel-2s-ht")
    looks = [bool(after(node, observer).resctrl.threads) for _ in range(11)]
    assert looks == [True, *[False] * 4] * 2 + [True]


def test_threads_are_not_looked_at_when_no_class_is_enabled(observe_shape: ObserveShape) -> None:
    node, observer = observe_shape("intel-2s-ht")
    node.slo(resctrl=False)
    assert not after(node, observer).resctrl.threads


def test_threads_in_a_group_of_ours_are_looked_at_after_the_last_class_was_disabled(
    observe_shape: ObserveShape,
) -> None:
    node, observer = observe_shape("intel-2s-ht")
    node.slo(resctrl=False)
    node.sandbox.files.mkdir("/sys/fs/resctrl/BE")
    node.sandbox.advance(1.0)
    seen = observer.observe(lambda *_: RunState(ours=frozenset({changes.parse("resctrl/BE")})))
    assert seen.resctrl.groups["BE"].tasks == frozenset()


def test_a_placement_published_in_this_run_has_an_age(node: Emulated, observer: Observer) -> None:
    from koordlite.changes.published import TopologyChange

    assert "placement" not in observer.observe().ages
    node.cluster.publish([TopologyChange(keys.PLACEMENT, "{}")])
    assert after(node, observer).ages["placement"] == 0.0
    assert after(node, observer, 5.0).ages["placement"] == 5.0


def test_a_placement_of_an_earlier_run_has_no_age(node: Emulated) -> None:
    from koordlite.changes.published import TopologyChange

    node.host()
    node.cluster.publish([TopologyChange(keys.PLACEMENT, "{}")])
    observer = Observer(node.host(), node.cluster, tasks_seconds=5.0)
    assert ["placement" in after(node, observer).ages for _ in range(3)] == [False] * 3


@pytest.mark.parametrize(
    ("app", "group"),
    [
        pytest.param(HostApplication(name="db", qos=QoSClass.LS), "host-latency-sensitive/db", id="by class"),
        pytest.param(HostApplication(name="scan", qos=QoSClass.BE), "host-best-effort/scan", id="by class BE"),
        pytest.param(HostApplication(name="any"), "any", id="without a class"),
        pytest.param(
            HostApplication(name="x", base="KubepodsBesteffort", parent_dir="/jobs/", relative_path="x"),
            "kubepods/besteffort/jobs/x",
            id="by path below a known group",
        ),
        pytest.param(HostApplication(name="x", relative_path="own/x"), "own/x", id="by path below the root"),
    ],
)
def test_group_of_a_host_application(observer: Observer, app: HostApplication, group: str) -> None:
    assert pools.host_group(app, observer.observe().layout) == group


def test_the_time_for_people_is_utc(observer: Observer) -> None:
    assert observer.observe().taken_at == "2026-01-01T00:00:00Z"


# ── CPUs, host applications, kubelet's CPUs ──


def test_the_cpus_are_known_by_model_and_by_what_is_on(observe_shape: ObserveShape) -> None:
    _, observer = observe_shape("intel-2s-ht")
    info = observer.observe().cpu_info
    assert (info.vendor, info.hyper_threads, bool(info.model)) == ("GenuineIntel", True, True)
    assert info.cache_mask == f"{observer.observe().resctrl.caches['L3'].cbm_mask:x}"


def test_a_machine_without_cache_allocation_has_no_mask(node: Emulated, observer: Observer) -> None:
    assert observer.observe().cpu_info.cache_mask == ""


def test_groups_of_host_applications_are_in_the_picture(node: Emulated, observer: Observer) -> None:
    path = {"base": "CgroupRoot", "relativePath": "system.slice/node-daemons.service"}
    apps = [{"name": "daemons", "qos": "LS", "cgroupPath": path}, {"name": "none", "qos": "BE"}]
    node.raw_slo({"host-application-config": {"applications": apps}})
    node.sandbox.advance(2.0)
    seen = observer.observe()
    assert seen.host_groups == {"daemons": "system.slice/node-daemons.service", "none": "host-best-effort/none"}
    assert seen.cgroups[seen.host_groups["daemons"]].cpuset is not None
    assert seen.host_groups["none"] not in seen.cgroups


def test_a_group_we_wrote_stays_in_the_picture_when_nobody_names_it(node: Emulated, observer: Observer) -> None:
    group = "system.slice/node-daemons.service"
    found = {changes.parse(f"{group}/cpuset.cpus"): Original(CPUSet([0]), "cpusetPools")}
    assert group not in observer.observe().cgroups
    assert group in observer.observe(lambda *_: RunState(found=found)).cgroups


def test_a_reservation_by_number_keeps_off_the_cpus_of_system_pods(node: Emulated, observer: Observer) -> None:
    node.node(reservation='{"resources":{"cpu":"1"}}')
    assert str(after(node, observer, 2.0).reserved.cpus) == "0"
    node.node(reservation='{"resources":{"cpu":"1"}}', system_qos='{"cpuset":"0"}')
    assert str(after(node, observer, 2.0).reserved.cpus) not in ("0", "")
    node.node(reservation='{"resources":{"cpu":"1"}}', system_qos='{"cpuset":"0","cpusetExclusive":false}')
    assert str(after(node, observer, 2.0).reserved.cpus) == "0"
