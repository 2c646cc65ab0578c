"""The tests' API server answers as a real one of Kubernetes 1.36 did: recorded exchanges, by the rules they prove.

Each rule names its exchanges; a file is played once, in order. Exchanges that neither product sends are left out of the
files: field validation and its warnings, JSON patches, server-side apply, scheduling gates, pods that are created,
admission policies. Request bodies of PUT in `leases.json` are put right: the recorder had kept one object for all of
them.
"""

from __future__ import annotations

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
RULES: dict[str, dict[str, tuple[int, ...]]] = {
    "events-01-needed-fields": {"events": (0, 21, 22, 23, 24, 25, 26, 27, 33)},
    "events-02-limits": {"events": (28, 29, 30, 31, 32)},
    "events-03-microseconds": {"events": (35, 36)},
    "events-04-series-may-change": {"events": (2, 3, 15, 16, 17, 19, 34)},
    "events-05-all-else-is-immutable": {"events": (4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 18)},
    "events-06-core-is-less-strict": {"events": (42, 45)},
    "events-07-namespaces": {"events": (37, 38, 39)},
    "events-08-names": {"events": (1, 20, 40, 41, 43, 44)},
    "leases-09-preconditions": {"leases": (3, 4, 5, 7, 14)},
    "leases-10-create-and-times": {"leases": (0, 1, 2, 6, 8, 9, 10, 11, 12, 13, 15, 16, 17)},
    "patches-11-null-removes": {"node-status": (0, 1, 2, 3, 15), "pod-patches": (1, 6, 7, 8)},
    "patches-12-uid-422-version-409": {"node-status": (4, 5, 6), "pod-patches": (2, 3, 4, 5), "nrt": (11,)},
    "patches-13-quantities": {"node-status": (7, 8, 9, 10, 11)},
    "patches-14-status-and-spec": {"node-status": (12, 13, 14), "pod-patches": (9, 12)},
    "patches-15-media-and-bodies": {"node-status": (16, 17, 18, 19), "nrt": (10,)},
    "patches-17-annotations-and-labels": {"node-status": (20, 21, 22, 23, 24, 25)},
    "topology-18-owners": {"nrt": (0, 1, 2, 3)},
    "topology-19-owners-are-named": {"nrt": (12, 13, 14)},
    "topology-20-zones-are-replaced": {"nrt": (4, 5, 6, 7, 8, 9)},
    "topology-21-schema": {"custom-resource": (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16, 17)},
    "topology-22-dry-run": {"custom-resource": (12, 13, 14, 15, 18)},
    "topology-24-selectors-and-deletion": {"custom-resource": (19, 20, 21, 22)},
    "eviction-25-good": {"eviction": (0, 1, 4, 5, 6, 7, 8, 9, 10, 12, 13, 23, 24), "more-pods": (6,)},
    "eviction-26-budgets": {"eviction": (16, 17, 19, 26, 27, 28), "eviction-unsynced-budget": (0,)},
    "eviction-27-two-budgets": {"eviction": (18, 20, 21, 30)},
    "eviction-28-preconditions": {"eviction": (2, 3, 22, 25, 29), "more-pods": (3, 4, 5, 7)},
    "eviction-29-budget-at-once": {"eviction": (11, 14, 15)},
    "pods-30-what-may-change": {"pod-patches": (0, 10, 11, 13, 14)},
    "pods-32-deletion": {"pod-patches": (15, 16, 17, 18)},
    "binding-33-copies-metadata": {"binding": (0, 1)},
    "binding-34-preconditions": {"binding": (2, 3, 4, 5, 15, 17, 18), "more-pods": (1, 2)},
    "binding-35-targets": {"binding": (6, 7, 8, 9, 10, 11, 12, 13, 14, 16), "more-pods": (0,)},
    "lists-38-continue": {"list": (0, 1, 2, 3)},
    "lists-39-resource-versions": {"list": (4, 5, 6, 7, 8, 9)},
    "lists-40-selectors": {"list": (10, 11, 12, 13)},
    "watches-41-selectors": {"watch": (0, 1)},
    "watches-42-bookmarks": {"watch-bookmark": (0,)},
    "watches-43-lists-as-streams": {"watch": (6, 7, 8, 9, 10, 11, 12)},
    "watches-44-too-old": {"expired": (1, 2, 3)},
    "watches-45-future-and-nonsense": {"watch": (2, 3, 4, 5)},
    "expired-46-lists-and-tokens": {"expired": (0,), "expired-continue": (0, 1, 2, 3)},
    "identity-47-token-reviews": {"auth": (0, 1, 2, 3)},
    "identity-48-access-reviews": {"auth": (4, 5, 6, 7)},
    "identity-49-refusals": {"auth": (8, 9, 10, 11, 12, 13, 14, 15, 16)},
}
"""Rule to its exchanges, by file and place in it."""


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


def _streamed(exchange: str, *, but: str = "") -> list[Any]:
    """The objects in a list that came as a stream."""
    exchanges = json.loads((FOLDER / "watch.json").read_text())["exchanges"]
    lines = next(each for each in exchanges if each["name"] == exchange)["response"]["stream"]
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
    exchanges = json.loads((FOLDER / f"{name}.json").read_text())["exchanges"]

    def setup(player: Player, exchange: str) -> None:
        if not exchange:
            _common(player)
        player.server.objects.load(*MADE.get((name, exchange), ()))
        _BEFORE.get((name, exchange), lambda _: None)(player)

    return list(Player(setup, **OPTIONS.get(name, {})).play(exchanges))


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


@pytest.mark.parametrize("rule", RULES)
def test_the_server_keeps_the_rule(rule: str) -> None:
    found = [(name, _outcomes(name)[place]) for name, places in RULES[rule].items() for place in places]
    differing = [f"{name}: {one.name}: {line}" for name, one in found for line in one.differences]
    assert not differing, "\n".join(differing)


def test_every_recorded_exchange_belongs_to_a_rule() -> None:
    named = {(name, place) for files in RULES.values() for name, places in files.items() for place in places}
    kept = {path.stem: len(json.loads(path.read_text())["exchanges"]) for path in FOLDER.glob("*.json")}
    assert named == {(name, place) for name, count in kept.items() for place in range(count)}
