"""The tests' API server answers as a real one of Kubernetes 1.36 did: recorded exchanges, by the rules they prove.

Each exchange names its rule; a file is played once, in order. Exchanges that neither product sends are left out of the
files: field validation and its warnings, JSON patches, server-side apply, scheduling gates, pods that are created,
admission policies. Request bodies of PUT in `leases.jsonl` are put right: the recorder had kept one object for all of
them.
"""

from __future__ import annotations

import collections
import functools
import itertools
import json
from pathlib import Path
from typing import Any

import cyaml
import pytest

from tests.apiserver.recorded_player import CRD, RESTRICTED, Outcome, Player

FOLDER = Path(__file__).parent / "recorded"
RBAC = "rbac.authorization.k8s.io"


def _allowed(*groups: tuple[str, tuple[str, ...], tuple[str, ...]]) -> list[Any]:
    return [{"apiGroups": [group], "resources": list(what), "verbs": list(verbs)} for group, what, verbs in groups]


RIGHTS = _allowed(
    ("", ("pods", "nodes"), ("list", "watch")),
    ("events.k8s.io", ("events",), ("create", "patch")),
    ("authentication.k8s.io", ("tokenreviews",), ("create",)),
    ("authorization.k8s.io", ("subjectaccessreviews",), ("create",)),
    ("", ("pods/eviction",), ("create",)),
    ("", ("nodes/status",), ("patch",)),
    ("topology.node.k8s.io", ("noderesourcetopologies",), ("create", "get", "list", "watch", "patch")),
)


_REQUESTS = {"cpu": "100m", "memory": "64Mi"}


def _pod(name: str, app: str = "", *, namespace: str = "rec-api", phase: str = "Running", **spec: Any) -> Any:
    labels = {"app": app} if app else {}
    ready = [{"type": "Ready", "status": "True"}] if phase == "Running" else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "nodeName": "rec-f1",
            "containers": [{"name": "c", "image": "localhost/pause:3.6", "resources": {"requests": _REQUESTS}}],
            "schedulerName": "nobody",
            "automountServiceAccountToken": False,
            **spec,
        },
        "status": {"phase": phase, "conditions": ready},
    }


def _budget(name: str, app: str, namespace: str = "rec-api", **status: int) -> Any:
    meta = {"name": name, "namespace": namespace, "generation": 1}
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
    head = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}
    return head | ({"status": status} if status else {})


def _config_map(name: str, namespace: str = "rec-watch") -> Any:
    meta = {"name": name, "namespace": namespace, "labels": {"w": "1"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "0"}}


def _exchanges(name: str) -> list[Any]:
    """The exchanges of a file, one a line; the first line is its title."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()[1:]]


def _streamed(exchange: str, *, but: str = "") -> list[Any]:
    """The objects in a list that came as a stream."""
    lines = next(each for each in _exchanges("watch") if each["name"] == exchange)["response"]["stream"]
    events = itertools.takewhile(lambda event: event["type"] == "ADDED", (line["event"] for line in lines))
    return [event["object"] for event in events if event["object"]["metadata"]["name"] != but]


OPTIONS = {"eviction": {"controllers": True}, "nrt": {"enforce_owners": True}}
"""How the server has to be for a file."""
MADE: dict[tuple[str, str], list[Any]] = {
    ("eviction", ""): [
        *(_pod(name) for name in ("free", "free2", "free3")),
        *(_pod(name, "a") for name in ("a1", "a2")),
        _pod("b1", "b"),
        _pod("pend2", phase="Pending", nodeName=""),
        _pod("done", "b", phase="Succeeded"),
        _budget("a", "a"),
        _budget("b", "b"),
    ],
    ("eviction", "a pod that is not running of a budget that is used up"): [_pod("pend", "a", phase="Pending")],
    ("eviction", "two budgets select the pod"): [_budget("b2", "b")],
    ("eviction-unsynced-budget", ""): [_pod("p1", "x", namespace="rec-api2"), _budget("race10", "x", "rec-api2")],
    ("more-pods", ""): [_pod(f"d{n}", namespace="rec-api2", nodeName="") for n in (1, 2, 3, 4)],
    ("list", ""): [_config_map(f"c{n}") for n in range(5)],
    ("watch", ""): [_config_map("c0")],
    ("watch", "sendInitialEvents (WatchList)"): _streamed("sendInitialEvents (WatchList)", but="c0"),
    ("watch", "a custom resource, sendInitialEvents"): _streamed("a custom resource, sendInitialEvents"),
    ("expired", ""): [_config_map("c0")],
}
"""What was there before a file, or before the exchange of that name."""


def _common(player: Player) -> None:
    for name in ("rec-api", "rec-api2", "rec-watch", "rec-watch2"):
        player.server.objects.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "rec-agent"}
    who = {"kind": "ServiceAccount", "name": "restricted", "namespace": RESTRICTED.split(":")[2]}
    head = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": "rec-agent"}}
    player.server.objects.load(
        head | {"kind": "ClusterRole", "rules": RIGHTS},
        head | {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": [who]},
        *cyaml.safe_load_all(CRD.read_text()),
    )


@functools.cache
def _outcomes(name: str) -> list[Outcome]:
    def setup(player: Player, exchange: str) -> None:
        if not exchange:
            _common(player)
        player.server.objects.load(*MADE.get((name, exchange), ()))
        _BEFORE.get((name, exchange), lambda _: None)(player)

    return list(Player(setup, **OPTIONS.get(name, {})).play(_exchanges(name)))


def _bind_before(player: Player) -> None:
    """The pods that are bound."""
    first = _pod("bind-b1", phase="Pending", nodeName="", terminationGracePeriodSeconds=0)
    first["metadata"] |= {"labels": {"l": "pod"}, "annotations": {"old": "1", "both": "pod"}}
    others = (_pod(f"bind-{n}", phase="Pending", nodeName="", terminationGracePeriodSeconds=0) for n in ("b2", "b3"))
    written = player.server.objects.load(first, *others)
    player.bind("00000000-0000-4000-8000-000000000001", written[0]["metadata"]["uid"])


def _bind_known(player: Player) -> None:
    """The pod that is bound by its uid and resource version."""
    known = player.server.objects.get("Pod", "d2", "rec-api2")
    assert known is not None
    player.bind("00000000-0000-4000-8000-000000000002", known["metadata"]["uid"])
    player.bind("10667", known["metadata"]["resourceVersion"])


def _delete_later(player: Player) -> None:
    pod = _pod("bind-bd", nodeName="")
    pod["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/held"]}
    player.server.objects.load(pod)


def _without_topology(player: Player) -> None:
    player.server.objects.remove("NodeResourceTopology", "rec-f1")


_GONE = (
    "create: owner, blockOwnerDeletion true",
    "get",
    "owner without uid",
    "owner without name",
    "two controllers",
)
_BEFORE: dict[tuple[str, str], Any] = {
    **{("nrt", exchange): _without_topology for exchange in _GONE},
    ("binding", ""): _bind_before,
    ("binding", "a pod that is being deleted"): _delete_later,
    ("watch", "from a resourceVersion, timeoutSeconds 3, changes meanwhile"): lambda player: player.bind(
        "8586", player.server.revision
    ),
    (
        "watch",
        "with labelSelector: a label that goes is DELETED, one that comes is ADDED",
    ): lambda player: player.bind("8601", player.server.revision),
    (
        "watch-bookmark",
        "allowWatchBookmarks, timeoutSeconds 80: bookmarks come about once a minute",
    ): lambda player: player.bind("10942", player.server.revision),
    ("more-pods", "bind with the current resourceVersion"): _bind_known,
    ("auth", ""): lambda player: player.bind("<token>", "admin"),
}


FILES: dict[str, list[str]] = collections.defaultdict(list)
"""Rule to the files with its exchanges."""
for _path in sorted(FOLDER.glob("*.jsonl")):
    for _rule in dict.fromkeys(each["rule"] for each in _exchanges(_path.stem)):
        FILES[_rule].append(_path.stem)


@pytest.mark.parametrize("rule", sorted(FILES))
def test_the_server_keeps_the_rule(rule: str) -> None:
    outcomes = [(name, each) for name in FILES[rule] for each in _outcomes(name) if each.rule == rule]
    differing = [f"{name}: {one.name}: {line}" for name, one in outcomes for line in one.differences]
    assert not differing, "\n".join(differing)
