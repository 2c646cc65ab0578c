"""The cluster through its API server: what is seen, and what happens when it is away."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest
from apibench import NODE, Bench, config, pod, until
from apiserver import ApiServer, Fault

from koordlite.changes.published import TopologyChange
from koordlite.model.errors import InputError
from koordlite.ports import ClusterView


def _names(view: ClusterView) -> list[str]:
    return sorted(pod.metadata.name for pod in view.pods)


def test_the_first_view_holds_what_concerns_this_node(bench: Bench) -> None:
    view = bench.cluster().view()
    assert view.node is not None
    assert view.node.metadata.name == "n1"
    assert _names(view) == ["a", "b"]
    assert view.config == {"k": "1"}
    assert view.topology is None
    assert view.problems == ()
    assert set(view.ages) == {"node", "pods", "config"}
    assert max(view.ages.values()) < 5
    assert (bench.asked("list"), bench.asked("watch")) == (0, 4), "the lists came as streams"


def test_changes_arrive_and_what_did_not_change_stays_the_same_object(bench: Bench) -> None:
    cluster = bench.cluster()
    before = cluster.view()
    bench.server.objects.load(pod("d"), config(k="2"))
    bench.server.objects.remove("Pod", "a", "default", api_version="v1")
    until(lambda: _names(cluster.view()) == ["b", "d"] and cluster.view().config == {"k": "2"})
    after = cluster.view()
    assert after.node is before.node
    kept = next(pod for pod in after.pods if pod.metadata.name == "b")
    assert any(pod is kept for pod in before.pods)
    assert (bench.asked("list"), bench.asked("watch")) == (0, 4)


def test_no_config_map_is_no_config_and_no_problem(bench: Bench) -> None:
    bench.server.objects.remove("ConfigMap", "slo-controller-config", "koordinator-system", api_version="v1")
    view = bench.cluster().view()
    assert view.config is None
    assert view.problems == ()


@pytest.mark.parametrize("resource", ["configmaps", "pods", "nodes"])
def test_half_a_picture_is_none(bench: Bench, resource: str) -> None:
    bench.server.faults.add(Fault(resource=resource, status=403, times=None))
    cluster = bench.cluster()
    view = cluster.view()
    assert view.node is None
    assert "403" in str(view.problems)
    bench.server.faults.clear()
    until(lambda: cluster.view().node is not None)


def test_a_node_that_is_not_registered_is_named(bench: Bench) -> None:
    bench.server.objects.remove("Node", "n1", api_version="v1")
    view = bench.cluster().view()
    assert view.node is None
    assert "NODE_NAME" in str(view.problems)


def test_a_server_without_the_kind_is_a_stated_fact(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ApiServer())
        server.objects.load(NODE)
        cluster = Bench(server, tmp_path, stack).cluster()
        until(lambda: any(watch.absent for watch in cluster.view().watches))
        assert cluster.view().problems == ()
        with pytest.raises(InputError, match="install the CRD"):
            cluster.publish([TopologyChange("k", "v")])


def test_the_server_going_away_leaves_the_last_state_with_its_age(bench: Bench) -> None:
    cluster = bench.cluster()
    bench.server.stop()
    until(lambda: any(watch.error for watch in cluster.view().watches if watch.name == "pods"))
    view = cluster.view()
    assert _names(view) == ["a", "b"]
    assert view.ages["pods"] > 0
    assert any("watch of pods" in str(problem) for problem in view.problems)
    bench.server.objects.load(pod("late"))
    bench.server.start()
    until(lambda: "late" in _names(cluster.view()))
    until(lambda: not cluster.view().problems)


def test_a_forgotten_history_is_caught_up_by_one_list(bench: Bench) -> None:
    cluster = bench.cluster()
    bench.server.faults.add(Fault(verb="watch", resource="pods", gone=True))
    bench.server.stop()
    bench.server.objects.load(pod("missed"))
    bench.server.start()
    until(lambda: "missed" in _names(cluster.view()))
    until(lambda: next(watch for watch in cluster.view().watches if watch.name == "pods").relists == 1)


def test_poison_is_a_problem_and_the_rest_goes_on(bench: Bench) -> None:
    bench.server.faults.add(Fault(verb="watch", resource="pods", poison=True))
    cluster = bench.cluster()
    bench.server.objects.load(pod("d"))
    until(lambda: _names(cluster.view()) == ["a", "b", "d"])
    assert any("pod/default/poison" in str(problem) for problem in cluster.view().problems)


def test_stop_ends_every_thread(bench: Bench) -> None:
    """Only threads begun here are judged: one worker runs many tests, and some leave daemon threads."""
    before = set(threading.enumerate())
    cluster = bench.cluster()
    started = set(threading.enumerate()) - before
    cluster.stop()
    assert started
    until(lambda: not [thread for thread in started if thread.is_alive()])
