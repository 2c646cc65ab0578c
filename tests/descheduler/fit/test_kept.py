"""A fit that knows the answers of the last plan: they are those of a fit that knows nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from descheduler.fit import kept
from descheduler.fit.kept import KeptFit
from descheduler.fit.search import FitSearch, Place
from descheduler.framework import PodView, View
from descheduler.picture.pods import TemplateKey
from koordlite.model.quantity import Quantity
from koordlite.model.wire import objects

replace = msgspec.structs.replace


@pytest.fixture
def view(cluster: Any) -> View:
    """Six nodes in two zones, and twenty pods of three applications, some with rules about each other."""
    for number in range(6):
        cluster.node(f"n{number}", cpu="8", labels={"zone": "ab"[number % 2]})
    for number in range(20):
        app = "xyz"[number % 3]
        pod = cluster.pod(f"p{number}", f"n{number % 5}", cpu="1", labels={"app": app})
        alike = {"matchLabels": {"app": app}}
        if app == "x":
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": alike}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            pod["spec"]["affinity"] = {"podAntiAffinity": required}
        if app == "y":
            spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
            pod["spec"]["topologySpreadConstraints"] = [{**spread, "labelSelector": alike}]
    return replace(cluster.view(), cache={})


def changed(view: View, name: str, change: Callable[[PodView], PodView]) -> View:
    """The next picture, in which one pod is another value."""
    nodes = {
        node.name: replace(node, pods=tuple(change(pod) if pod.pod.name == name else pod for pod in node.pods))
        if any(pod.pod.name == name for pod in node.pods)
        else node
        for node in view.nodes.values()
    }
    return replace(view, nodes=nodes)


def restarted(pod: PodView) -> PodView:
    state = objects.ContainerStatus(name="main", restart_count=3)
    return replace(pod, object=replace(pod.object, status=replace(pod.object.status, container_statuses=(state,))))


def larger(pod: PodView) -> PodView:
    return replace(pod, pod=replace(pod.pod, requests={"cpu": Quantity.of(4)}), template=TemplateKey())


def of_another_key(pod: PodView) -> PodView:
    return replace(pod, template=TemplateKey())


@pytest.mark.parametrize("seed", range(20))
def test_answers_are_those_of_a_fit_that_knows_nothing(view: View, seed: int) -> None:
    chance = random.Random(seed)
    script = [(chance.randrange(20), chance.random() < 0.5) for _ in range(30)]
    for _ in range(4):
        known, fresh, pods = kept.of(view), FitSearch(view), list(view.pods())
        left = set[str]()
        for number, moves in script:
            pod = pods[number]
            found = known.search(pod, each=moves)
            assert found == fresh.search(pod, each=moves)
            assert known.fits(pod, "zone=a") == fresh.fits(pod, "zone=a")
            assert known.fits_on(pod, {"n5", "n1"}) == fresh.fits_on(pod, {"n5", "n1"})
            if moves and pod.uid not in left:
                left.add(pod.uid)
                for fit in (known, fresh):
                    if found.places:
                        fit.move(pod, found.places[0])
                    else:
                        fit.leave(pod)
        for name in view.nodes:
            assert known.capacity(name).unrequested == fresh.capacity(name).unrequested
        script[chance.randrange(len(script)) :] = [(chance.randrange(20), True) for _ in range(10)]
        view = changed(view, f"p{chance.randrange(20)}", chance.choice([restarted, restarted, larger]))


@pytest.mark.parametrize(
    ("change", "asks"),
    [
        pytest.param(lambda pod: pod, False, id="nothing changed"),
        pytest.param(restarted, False, id="a status says nothing about places"),
        pytest.param(of_another_key, False, id="an equal template may have another key"),
        pytest.param(larger, True, id="a pod that takes more of a node changes every order of nodes"),
    ],
)
def test_nothing_is_asked_a_second_time(
    view: View, monkeypatch: pytest.MonkeyPatch, change: Callable[[PodView], PodView], asks: bool
) -> None:
    def plan(of: View) -> list[Any]:
        fit, pods = kept.of(of), list(of.pods())
        first = fit.search(pods[0])
        fit.move(pods[0], first.places[0])
        return [first, fit.fits(pods[1]), fit.search(pods[2])]

    plan(view)
    asked = list[PodView]()
    real = FitSearch._question

    def question(fit: FitSearch, pod: PodView, inside: str) -> Any:
        asked.append(pod)
        return real(fit, pod, inside)

    monkeypatch.setattr(FitSearch, "_question", question)
    plan(changed(view, "p19", change))
    assert bool(asked) == asks


def test_an_attempt_in_the_middle_leaves_no_trace(view: View) -> None:
    pods = list(view.pods())
    for _ in range(2):
        fit = kept.of(view)
        fit.move(pods[0], Place("n5"))
        before = fit.search(pods[3])
        with fit.attempt():
            fit.move(pods[1], Place("n5"))
            assert len(fit.capacity("n5").arrivals) == 2
        assert fit.search(pods[3]) == before
        fit.leave(pods[1])
        assert [pod.uid for pod, _ in fit.capacity("n5").arrivals] == [pods[0].uid]


def test_one_picture_alone_keeps_nothing(view: View) -> None:
    assert not isinstance(kept.of(replace(view, cache=None)), KeptFit)
